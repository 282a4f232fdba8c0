"""Audit graders: wrong answers they accept, right ones they refuse, exploits, and where two of them disagree.

trimtab audit mathematics
trimtab audit answer --option marker=Answer:
trimtab audit format --option 'tags=["think", "answer"]'
trimtab audit my_rewards.py:accuracy --form '\\boxed{{}}' --rows labelled.jsonl
trimtab audit mathematics my_rewards.py:accuracy --corpus none --rows sampled.jsonl

Built-in cases come first, by --corpus (answer, mathematics, code, format, or none); a function is asked the
cases of the corpus answer. --rows adds rows {"answer", "response", "right"?, "kind"?} of your own, one a
line; "right" is your label, and rows without one count for disagreements only. Options of the second grader
are written 2:key=value.

exit code: 0 within the limits; 1 a limit is exceeded (--max-...); 2 a grader, an option or a row is wrong
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.grade import rubric_of
from trimtab.cli.words import option, safe, say
from trimtab.errors import SettingError

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.evaluation.audit import Asked, Audit, Case, Share
    from trimtab.rewards.rubric import Rubric

TEXTS = ("--option", "--form")
EXCEEDED = 1
LIMITS = {
    "false positive": ("max_false_positives", 0.005),
    "false negative": ("max_false_negatives", 0.03),
    "ungraded": ("max_ungraded", 0.0),
    "disagreement": ("max_disagreement", 1.0),
}
"""The share that each verdict may have, and its default."""
SHORT = 60


def add(parser: argparse.ArgumentParser) -> None:
    """GRADER..., --option, --corpus, --rows, --form, --kind, --show, --json, and the limits."""
    parser.add_argument("graders", nargs="+", metavar="GRADER", help="a built-in grader, or path.py:function")
    parser.add_argument("--option", action="append", default=[], metavar="[N:]KEY=VALUE", help="of grader N")
    parser.add_argument("--corpus", metavar="NAME", help="the built-in cases; by default those of the grader")
    parser.add_argument("--rows", metavar="ROWS.jsonl", help="rows of your own")
    parser.add_argument("--form", metavar="TEXT", help="how a response gives its answer: '#### {}'")
    parser.add_argument("--kind", action="append", default=[], metavar="KIND", help="only cases of this kind")
    parser.add_argument(
        "--show", type=int, default=5, metavar="N", help="cases listed a verdict; %(default)s"
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="%(default)s an answer"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    for verdict, (name, least) in LIMITS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(
            flag, type=float, default=least, metavar="SHARE", help=f"of {verdict}s; %(default)s"
        )


def main(args: argparse.Namespace) -> int:
    """Print the tables, or JSON."""
    import asyncio  # takes longer to load than all other commands together

    if len(args.graders) > 2:
        raise SettingError(f"audit takes one grader, or two to compare, got {len(args.graders)}")
    for name, _ in LIMITS.values():
        if not 0.0 <= getattr(args, name) <= 1.0:
            given = f"{getattr(args, name):g}"
            raise SettingError(f"--{name.replace('_', '-')} is a share from 0 to 1, got {given}")
    if args.show < 0:
        raise SettingError(f"--show must be >= 0, got {args.show}")
    return asyncio.run(_audit(args))


async def _audit(args: argparse.Namespace) -> int:
    from trimtab.evaluation.audit import audit, disagreements

    options = _options(args.option, len(args.graders))
    rubrics = [
        rubric_of(name, given, args.timeout) for name, given in zip(args.graders, options, strict=True)
    ]
    cases = await _cases(args, options[0], rubrics[0])
    audits = [await audit(name, rubric, cases) for name, rubric in zip(args.graders, rubrics, strict=True)]
    shares: dict[str, list[Share]] = {
        verdict: [one.share(verdict) for one in audits] for verdict in LIMITS if verdict != "disagreement"
    }
    found: list[Any] = []
    if len(audits) == 2:
        share, found = disagreements(*audits)
        shares["disagreement"] = [share]
    exceeded = [
        f"{verdict}s: {share} is more than --{name.replace('_', '-')} {getattr(args, name):g}"
        for verdict, (name, _) in LIMITS.items()
        for share in shares.get(verdict, ())
        if (share.value or 0.0) > getattr(args, name)
    ]
    if args.json:
        say(json.dumps(_as_json(audits, shares, found, exceeded)))
    else:
        _show(audits, shares, found, args.show)
        for line in exceeded:
            say(f"exceeded: {line}")
    return EXCEEDED if exceeded else 0


def _options(tokens: Sequence[str], graders: int) -> list[dict[str, Any]]:
    """The options of each grader."""
    options: list[dict[str, Any]] = [{} for _ in range(graders)]
    for token in tokens:
        number, colon, rest = token.partition(":")
        place, own = (int(number) - 1, rest) if colon and number.isdecimal() else (0, token)
        if not 0 <= place < graders:
            raise SettingError(f"option {token!r} is for grader {place + 1}, and there are {graders}")
        key, value = option(own)
        options[place][key] = value
    return options


async def _cases(args: argparse.Namespace, options: dict[str, Any], rubric: Rubric) -> list[Case]:
    """The built-in cases and the user's rows, of the kinds asked for."""
    from trimtab.errors import nearest
    from trimtab.evaluation.audit import CORPORA, Form, built_in, find_form, form_of, read_rows

    name = args.graders[0]
    corpus = args.corpus or (name if name in CORPORA else "answer")
    cases: list[Case] = []
    if corpus != "none":
        form = Form.of(args.form) if args.form else form_of(name, options)
        if form is None and corpus in ("answer", "mathematics"):
            form = await find_form(rubric)
            if not args.json:
                say(f"form: {form} (found by trying; --form sets it)")
        cases += built_in(corpus, options, form)
    if args.rows:
        cases += read_rows(Path(args.rows))
    kinds = {case.kind for case in cases}
    for kind in args.kind:
        if kind not in kinds:
            raise SettingError(f"there are no cases of the kind {kind!r}{nearest(kind, kinds)}")
    cases = [case for case in cases if not args.kind or case.kind in args.kind]
    if not cases:
        raise SettingError("there are no cases: --corpus none needs --rows ROWS.jsonl with at least one row")
    return cases


def _show(audits: Sequence[Audit], shares: dict[str, list[Share]], found: Sequence[Any], most: int) -> None:
    from rich.console import Console

    console = Console()
    for one in audits:
        console.print(_table(one))
        for verdict in ("false positive", "false negative", "partial", "ungraded"):
            bad = [asked for asked in one.asked if asked.verdict == verdict]
            for asked in bad[:most]:
                say(f"{verdict}, {asked.case.kind}: {_told(asked)}")
            if len(bad) > most:
                say(f"... and {len(bad) - most} more {verdict}s (--show N lists them)")
    if "disagreement" in shares:
        say(f"disagreements: {shares['disagreement'][0]}")
        for each in found[:most]:
            who = audits[0 if each.accepted[0] else 1].grader
            say(f"only {who} accepts {_short(each.case.response)} for {_short(each.case.answer)}")


def _table(audit: Audit) -> Table:
    """A row a kind, one for the exploits and one for all."""
    from rich.table import Table
    from rich.text import Text  # so that brackets in names and kinds are no markup

    table = Table(title=Text(safe(f"{audit.grader}: {len(audit.asked)} cases, 95% intervals")))
    for heading in ("kind", "wrong accepted", "right refused", "partial", "ungraded"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind in audit.kinds():
        cells = [str(audit.share(verdict, lambda case, kind=kind: case.kind == kind)) for verdict in _COLUMNS]
        table.add_row(Text(safe(kind)), *cells)
    table.add_section()
    table.add_row("all exploits", str(audit.exploits), "-", "-", "-")
    table.add_row("all", *(str(audit.share(verdict)) for verdict in _COLUMNS))
    return table


_COLUMNS = ("false positive", "false negative", "partial", "ungraded")


def _as_json(
    audits: Sequence[Audit], shares: dict[str, list[Share]], found: Sequence[Any], exceeded: list[str]
) -> dict[str, Any]:
    result: dict[str, Any] = {"graders": [_one_as_json(one) for one in audits], "exceeded": exceeded}
    if "disagreement" in shares:
        result["disagreement"] = shares["disagreement"][0].as_json()
        result["disagreements"] = [
            {"answer": each.case.answer, "response": each.case.response, "accepted": list(each.accepted)}
            for each in found
        ]
    return result


def _one_as_json(audit: Audit) -> dict[str, Any]:
    kinds = {
        kind: {
            verdict.replace(" ", "_"): audit.share(
                verdict, lambda case, kind=kind: case.kind == kind
            ).as_json()
            for verdict in _COLUMNS
        }
        for kind in audit.kinds()
    }
    return {
        "grader": audit.grader,
        "cases": len(audit.asked),
        **{verdict.replace(" ", "_"): audit.share(verdict).as_json() for verdict in _COLUMNS},
        "exploits": audit.exploits.as_json(),
        "kinds": kinds,
        "faults": [
            {
                "verdict": one.verdict,
                "kind": one.case.kind,
                "answer": one.case.answer,
                "response": one.case.response,
                "state": str(one.grade.state),
                "value": one.grade.value,
                "detail": one.grade.detail,
            }
            for one in audit.asked
            if one.verdict
        ],
    }


def _told(asked: Asked) -> str:
    case = asked.case
    return f"{_short(case.response)} for {_short(case.answer)}: {_short(asked.grade.detail)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= SHORT else f"{text[: SHORT // 2]} ... {text[-SHORT // 2 :]}"
    return text.replace("\n", "\\n")
