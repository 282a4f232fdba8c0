"""Try a grader: one answer against its gold answer, or a file of them, as JSON.

trimtab grade mathematics --answer '\\frac12' --response '\\boxed{0.5}'
trimtab grade answer --option marker=Answer: --answer 7 --response 'Answer: 7'
trimtab grade code --answer '[{"stdin": "2", "stdout": "4"}]' --response - < response.md
trimtab grade my_rewards.py:accuracy --file rows.jsonl

A grade is {"state", "value", "parts", "detail"}. A file holds one object {"answer", "response", ...} a line;
its grades are printed in order, one a line, empty lines apart. A line that cannot be read is reported on
stderr and has a grade not_gradable in its place; the others are graded.

exit code: 0 every answer was graded, right or wrong; 1 some could not be graded; 2 a grader, an option or a
line of the file is wrong
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trimtab.cli.words import option, say
from trimtab.errors import DataError, SettingError

if TYPE_CHECKING:
    from trimtab.rewards.rubric import Rubric
    from trimtab.types import Grade

UNGRADED, BAD_ROWS = 1, 2
TEXTS = ("--answer", "--response", "--prompt", "--option")


def add(parser: argparse.ArgumentParser) -> None:
    """GRADER, --answer, --response, --prompt, --file, --option, --timeout."""
    parser.add_argument("grader", metavar="GRADER", help="a built-in grader, or path.py:function")
    parser.add_argument("--answer", metavar="GOLD", help="the gold answer; for code, tests as a JSON list")
    parser.add_argument("--response", metavar="TEXT", help="the response; - reads it from stdin")
    parser.add_argument("--prompt", metavar="TEXT", default="", help="the prompt, for graders that read it")
    parser.add_argument("--file", metavar="ROWS.jsonl", help="grade every row; - reads them from stdin")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the grader"
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="%(default)s an answer"
    )


def main(args: argparse.Namespace) -> int:
    """Print the grades."""
    import asyncio  # takes longer to load than all other commands together

    if (args.file is None) == (args.response is None):
        raise SettingError("grade needs either --response TEXT (with --answer GOLD) or --file ROWS.jsonl")
    if args.file is not None and (args.answer is not None or args.prompt):
        raise SettingError(
            "with --file, each row brings its own answer and prompt; leave --answer and --prompt out"
        )
    rubric = rubric_of(args.grader, dict(map(option, args.option)), args.timeout)
    if args.file is not None:
        return asyncio.run(_grade_file(rubric, args.file))
    response = _stdin().read() if args.response == "-" else args.response
    return asyncio.run(
        _grade_one(rubric, {"answer": args.answer, "response": response, "prompt": args.prompt})
    )


def rubric_of(name: str, options: dict[str, Any], timeout: float) -> Rubric:
    """A rubric of this one grader. Raises SettingError and DataError where it cannot be used."""
    from trimtab.rewards.build import build_rubric
    from trimtab.rewards.rubric import GraderConfig, RewardConfig

    grader = GraderConfig(name=name, options=options)
    rubric = build_rubric(RewardConfig(graders=(grader,), timeout=timeout))
    rubric.self_check([])  # loads what the grader needs: a wrong path is told of once, not in every row
    return rubric


def as_json(grade: Grade) -> str:
    """A grade as one line."""
    return json.dumps(
        {"state": str(grade.state), "value": grade.value, "parts": dict(grade.parts), "detail": grade.detail}
    )


async def _grade_one(rubric: Rubric, row: dict[str, Any]) -> int:
    from trimtab.rewards.rows import group_of

    (grade,) = (await rubric.grade(group_of(row))).grades
    say(as_json(grade))
    return 0 if grade.graded else UNGRADED


async def _grade_file(rubric: Rubric, file: str) -> int:
    from trimtab.rewards.rows import grade_rows, read_lines
    from trimtab.types import Grade, GradeState

    code = 0
    with _opened(file) as lines:
        async for graded in grade_rows(rubric, read_lines(lines, "stdin" if file == "-" else file)):
            if isinstance(graded, DataError):
                say(f"trimtab: {graded}", sys.stderr)
                code = BAD_ROWS
                graded = Grade(state=GradeState.NOT_GRADABLE, value=None, detail=str(graded))
            code = code or (0 if graded.graded else UNGRADED)
            say(as_json(graded))
    return code


def _opened(file: str) -> contextlib.AbstractContextManager[TextIO]:
    from trimtab.rewards.rows import open_rows

    return contextlib.nullcontext(_stdin()) if file == "-" else open_rows(Path(file))


def _stdin() -> TextIO:
    """stdin as UTF-8, whatever the locale; other bytes are kept, so that their line can be named."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    return sys.stdin
