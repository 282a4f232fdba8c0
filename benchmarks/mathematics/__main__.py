"""``python -m benchmarks.mathematics``: error rates on the corpus, printed and, with ``--docs``, written.

--part scored|tuning|all   the part to measure; the published one is ``scored``
--show                     list every row that our grader gets wrong (never while rules are tuned on it)
--docs                     put the table into docs/mathematics.md
--write FILE               write all rows as JSON lines
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from pathlib import Path

from benchmarks.mathematics.generator import generated
from benchmarks.mathematics.graders import installed, ours
from benchmarks.mathematics.report import as_table, measure
from benchmarks.mathematics.rows import Row, handmade

DOCS = Path(__file__).parents[2] / "docs" / "mathematics.md"
BEGIN, END = "<!-- table: python -m benchmarks.mathematics --docs -->\n", "<!-- end of table -->"
SEED = 1
ROWS_A_KIND = 84


def corpus(seed: int = SEED, rows_a_kind: int = ROWS_A_KIND) -> list[Row]:
    """All rows, hand-written ones first, each once."""
    rows = [*handmade(), *generated(seed, rows_a_kind)]
    return list({(row.kind, row.gold, row.response): row for row in reversed(rows)}.values())[::-1]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Error rates of mathematics graders on labelled pairs.")
    parser.add_argument("--part", choices=("scored", "tuning", "all"), default="scored")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # math-verify logs every timeout
    rows = corpus(asked.seed)
    if asked.write:
        lines = (
            json.dumps({**dataclasses.asdict(row), "part": row.part}, ensure_ascii=False) for row in rows
        )
        asked.write.write_text("\n".join(lines) + "\n", encoding="utf-8")
    chosen = [row for row in rows if asked.part in (row.part, "all")]
    measured = {}
    for name, grader in installed().items():
        began = time.perf_counter()
        measured[name] = measure(chosen, grader)
        sys.stderr.write(f"{name}: {len(chosen)} rows in {time.perf_counter() - began:.1f} s\n")
    equal = sum(row.equivalent for row in chosen)
    text = (
        f"Part `{asked.part}`, {len(chosen)} of {len(rows)} rows (seed {asked.seed}): {equal} equivalent, "
        f"{len(chosen) - equal} not; {sum(row.origin == 'handmade' for row in chosen)} hand-written.\n\n"
        f"{as_table(measured)}\n"
    )
    sys.stdout.write(text)
    if asked.show:
        grader = ours()
        for row in chosen:
            if grader(row.gold, row.response) != row.equivalent:
                sys.stdout.write(f"{row.kind}  {row.equivalent}  {row.gold}  |  {row.response!r}\n")
    if asked.docs:
        before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCS.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
