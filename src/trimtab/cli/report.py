"""Write one run as a self-contained HTML file.

trimtab report runs/quickstart                    beside the run: runs/quickstart.html
trimtab report runs/quickstart --to result.html   somewhere else
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from pathlib import Path

from trimtab.cli.words import say
from trimtab.errors import RunError


def add(parser: argparse.ArgumentParser) -> None:
    """RUN, --to, --force."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--to", type=Path, metavar="FILE", help="the file to write (default: RUN.html)")
    parser.add_argument("--force", action="store_true", help="replace the file where it exists")


def main(args: argparse.Namespace) -> int:
    """Write the file and say where it is."""
    from trimtab.dashboard.report import write_report

    if not (args.run / "run.json").exists():
        raise RunError(f"{args.run} holds no run (there is no run.json in it)")
    to = args.to or args.run.resolve().with_name(f"{args.run.resolve().name}.html")
    if to.exists() and not args.force:
        raise RunError(f"{to} exists already; add --force to replace it, or choose another --to")
    size = write_report(args.run, to)
    say(f"written: {to} ({size / 1e6:.1f} MB)")
    return 0
