"""Write the model of a run as a folder that transformers loads."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from pathlib import Path

from trimtab.cli.words import say


def add(parser: argparse.ArgumentParser) -> None:
    """RUN, --step and --to."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder, such as runs/quickstart")
    parser.add_argument(
        "--step", type=int, metavar="N", help="the checkpoint of this step (default: the last)"
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="the folder to write, not there yet"
    )


def main(args: argparse.Namespace) -> int:
    """Export, and say where the model lies."""
    from trimtab import launch

    written = launch.export(args.run, step=args.step, to=args.to)
    say(f"model written to {written}")
    return 0
