"""``python -m benchmarks.audit``: the audit of every built-in grader and of two naive ones; --docs writes it.

Takes half a minute: two of the cheating programs run until they are ended.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from trimtab.evaluation.audit import CORPORA, Audit, audit, built_in, find_form, form_of
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "audit.md"
BEGIN, END = "<!-- table: python -m benchmarks.audit --docs -->\n", "<!-- end of table -->"
NAIVE = Path(__file__).with_name("naive_rewards.py")
AUDITED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("answer", {}),
    ("mathematics", {}),
    ("code", {}),
    ("format", {"tags": ["think", "answer"]}),
    ("format", {"boxed": True}),
    ("format", {"json_keys": ["a", "b"]}),
    (f"{NAIVE}:contains", {}),
    (f"{NAIVE}:last_number", {}),
)


async def audited(name: str, options: dict[str, Any]) -> Audit:
    """The audit of one grader on its built-in cases."""
    rubric = build_rubric(RewardConfig(graders=(GraderConfig(name=name, options=options),)))
    corpus = name if name in CORPORA else "answer"
    form = form_of(name, options)
    if form is None and corpus == "answer":
        form = await find_form(rubric)
    return await audit(name, rubric, built_in(corpus, options, form))


def table() -> str:
    """One row a grader, in Markdown; below it every case that was graded against its label by our own."""
    lines = [
        "| grader | cases | wrong accepted | of these exploits | right refused | ungraded |",
        "|---" * 6 + "|",
    ]
    faults: list[str] = []
    for name, options in AUDITED:
        result = asyncio.run(audited(name, options))
        told = ", ".join(f"{key} = {value}" for key, value in options.items())
        label = f"`{Path(name).name}`" + (f", {told}" if told else "")
        shares = [result.share("false positive"), result.exploits]
        shares += [result.share("false negative"), result.share("ungraded")]
        lines.append(f"| {label} | {len(result.asked)} | {' | '.join(map(str, shares))} |")
        if ".py:" not in name:
            bad = [one for one in result.asked if one.verdict]
            faults += [
                f"* `{name}`, {one.verdict}, {one.case.kind}: `{one.case.response[-40:]!r}` "
                f"for `{one.case.answer}`"
                for one in bad
            ]
    return "\n".join(
        [*lines, "", "Graded against the label by a built-in grader:", "", *(faults or ["none"])]
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Audit of every built-in grader, as a Markdown table.")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/audit.md")
    asked = parser.parse_args()
    text = table()
    sys.stdout.write(f"{text}\n")
    if asked.docs:
        before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCS.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
