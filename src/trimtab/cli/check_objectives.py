"""Check advantages, loss and gradient against a file of golden cases (exit code 1 beyond the tolerance)."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from pathlib import Path

from trimtab.cli.words import say


def add(parser: argparse.ArgumentParser) -> None:
    """FILE."""
    parser.add_argument("file", type=Path, metavar="FILE.json", help="cases in the golden format")


def main(args: argparse.Namespace) -> int:
    """Print the report; 1 where an error is too large."""
    from trimtab.algorithms.golden import check_golden

    report = check_golden(args.file)
    say(str(report))
    return 0 if report.ok else 1
