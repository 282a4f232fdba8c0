"""Say what is wrong with a run, why, and what to change.

trimtab doctor runs/quickstart                   a finished, running or imported run
trimtab doctor runs/quickstart --json            the same for a machine
trimtab doctor runs/quickstart --fail-on warning exit code 1 where anything but notes was found

exit codes: 0 nothing as grave as --fail-on (default: critical), 1 the gravest finding is a warning,
3 it is critical, 2 the command itself failed
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import safe

if TYPE_CHECKING:
    from rich.text import Text

    from trimtab.doctor.case import Case
    from trimtab.doctor.diagnose import Diagnosis
    from trimtab.record.findings import Evidence, Exhibit, Finding
    from trimtab.record.reader import RunReader

SHOWN_EXHIBITS, SHOWN_CAUSES, SHOWN_TEXT = 3, 3, 72
INDENT, WIDEST = 12, 110
EXIT_WARNING, EXIT_CRITICAL = 1, 3
COLOURS = {"critical": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def add(parser: argparse.ArgumentParser) -> None:
    """RUN, --json, --fail-on, --save."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("--json", action="store_true", help="every rule's finding as JSON")
    parser.add_argument(
        "--fail-on",
        choices=("warning", "critical"),
        default="critical",
        help="the gravity from which the exit code is not 0 (default: critical)",
    )
    parser.add_argument(
        "--save", action="store_true", help="also append to findings.jsonl of a run that ended"
    )


def main(args: argparse.Namespace) -> int:
    """Diagnose, tell, and turn the gravest finding into the exit code."""
    from trimtab.doctor.case import case_of
    from trimtab.doctor.diagnose import diagnose
    from trimtab.record.findings import Severity
    from trimtab.record.reader import RunReader

    reader = RunReader(args.run)
    case = case_of(reader)
    diagnosis = diagnose(case)
    if args.save:
        _save(reader, diagnosis)
    if args.json:
        _print_json(args.run, case, diagnosis)
    else:
        _print(reader, case, diagnosis)
    if not diagnosis.at_least(Severity(args.fail_on)):
        return 0
    return EXIT_CRITICAL if diagnosis.at_least(Severity.CRITICAL) else EXIT_WARNING


def _save(reader: RunReader, diagnosis: Diagnosis) -> None:
    """Append what differs from what the file says. A run that is still written keeps its own findings."""
    from trimtab.doctor.live import is_news
    from trimtab.errors import RunError
    from trimtab.record.findings import append_findings
    from trimtab.record.reader import State

    if reader.status().state is State.RUNNING:
        raise RunError(
            f"{reader.folder.path} is still running and writes its findings itself; leave --save out"
        )
    held = {finding.rule: finding for finding in reader.findings()}
    append_findings(
        reader.folder.findings, [one for one in diagnosis.findings if is_news(one, held.get(one.rule))]
    )


def _print_json(run: Path, case: Case, diagnosis: Diagnosis) -> None:
    from trimtab.doctor.diagnose import verdict
    from trimtab.record.findings import finding_to_dict

    told = {
        "run": str(run),
        "step": case.step,
        "verdict": verdict(diagnosis),
        "worst": None if diagnosis.worst is None else str(diagnosis.worst),
        "findings": [finding_to_dict(finding) for finding in diagnosis.findings],
    }
    print(json.dumps(told, indent=2))


def _print(reader: RunReader, case: Case, diagnosis: Diagnosis) -> None:
    from rich.console import Console
    from rich.text import Text

    from trimtab.doctor.diagnose import verdict

    console = Console(highlight=False, soft_wrap=True)
    width = min(console.width, WIDEST) if sys.stdout.isatty() else 10_000
    worst = "" if diagnosis.worst is None else COLOURS[str(diagnosis.worst)]
    for line in textwrap.wrap(safe(verdict(diagnosis)), width):
        console.print(Text(line, style=worst))
    name = case.setup.name or "unknown algorithm"
    console.print(Text(safe(f"{reader.name}: {name}, {len(case.history)} steps"), style="dim"))
    for finding in diagnosis.found:
        console.print()
        console.print(_heading(finding), soft_wrap=False, width=None if width > WIDEST else width)
        for label, text in _lines(finding, case):
            for line in _wrapped(f"{label:<9} {safe(text)}", width):
                console.print(Text.assemble((line[:INDENT], "dim"), line[INDENT:]))
    if diagnosis.skipped:
        console.print()
        gaps = ", ".join(f"{one.rule} ({', '.join(one.missing) or one.title})" for one in diagnosis.skipped)
        console.print(Text(safe(f"Could not look: {gaps}"), style="dim"))


def _wrapped(text: str, width: int) -> list[str]:
    """Lines below each other, two blanks in, continued under the text and not under its label."""
    rest = " " * INDENT
    deeper = rest + "   " if text[INDENT - 2 :].startswith("   ") else rest
    return textwrap.wrap(
        text,
        width,
        initial_indent="  ",
        subsequent_indent=deeper,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def _heading(finding: Finding) -> Text:
    from rich.text import Text

    severity = str(finding.severity)
    sure = "" if finding.confidence is None else f"  ({finding.confidence:.0%} sure)"
    return Text.assemble(
        (severity.upper(), COLOURS[severity]),
        (f"  {finding.rule}  ", "bold"),
        safe(finding.title),
        (sure, "dim"),
    )


def _lines(finding: Finding, case: Case) -> Iterator[tuple[str, str]]:
    for number, evidence in enumerate(finding.evidence):
        yield ("seen" if not number else "", _evidence(evidence))
    for number, exhibit in enumerate(finding.exhibits[:SHOWN_EXHIBITS]):
        yield ("shown by" if not number else "", _exhibit(exhibit, case))
    for number, cause in enumerate(finding.causes[:SHOWN_CAUSES], 1):
        yield ("likely" if number == 1 else "or", f"{number}. {cause.name}: {cause.what}")
        yield ("", f"   test: {cause.test}")
        yield ("", f"   change: {cause.change}")
    if finding.source:
        yield ("source", finding.source)


def _evidence(evidence: Evidence) -> str:
    if evidence.steps is None:
        return evidence.text
    first, last = evidence.steps
    return (
        f"{evidence.text} (step {first})" if first == last else f"{evidence.text} (steps {first} to {last})"
    )


def _exhibit(exhibit: Exhibit, case: Case) -> str:
    """Where the rollout is, why it is shown, and how its text reads there."""
    where = f"step {exhibit.step}, {exhibit.rollout}"
    row = next((row for row in case.rollouts.of(exhibit.step) if row.key == exhibit.rollout), None)
    if exhibit.tokens is not None:
        where += f", tokens {exhibit.tokens[0]} to {exhibit.tokens[1]}"
    text = "" if row is None else row.text
    if len(text) > SHOWN_TEXT:
        ends = exhibit.tokens is not None and row is not None and exhibit.tokens[0] > row.length // 2
        text = f"... {text[-SHOWN_TEXT:]}" if ends else f"{text[:SHOWN_TEXT]} ..."
    return f"{where}: {exhibit.why}" + (f": {text!r}" if text else "")
