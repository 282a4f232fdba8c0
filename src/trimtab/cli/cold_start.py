"""Make a start model by imitating demonstrations; without settings, the one in the package again.

trimtab cold-start --to models/sums                            the tiny model of the package, from nothing
trimtab cold-start --to models/other cold.seed=1 cold.updates=500
trimtab cold-start --to models/warm cold.model=org/model cold.demonstrations=d.jsonl cold.template.form=chat
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import say
from trimtab.errors import DataError

if TYPE_CHECKING:
    from trimtab.loop.cold_start import ColdStart, ColdStartSummary, Progress

EMBEDDED_TASK = "sums"


def add(parser: argparse.ArgumentParser) -> None:
    """--to; everything else is a setting of the table ``cold``."""
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="the folder to write, not there yet"
    )


def main(args: argparse.Namespace) -> int:
    """Train, measure, and say whether the weights are those of the package."""
    from trimtab.cli.lines import evaluation_line
    from trimtab.loop.cold_start import cold_start

    summary = cold_start(settings_of(args.settings), args.to, progress=_tell)
    if summary.evaluation:
        say(evaluation_line("result", summary.evaluation))
    say(f"{summary.parameters} parameters, weights sha256 {summary.sha256}{_compared(summary)}")
    say(f"model written to {args.to}")
    return 0


def settings_of(settings: Sequence[str]) -> ColdStart:
    """The cold start that settings ``cold.KEY=VALUE`` describe.

    Raises SettingError like a recipe's.
    """
    from dataclasses import make_dataclass

    from trimtab.config import tables_of
    from trimtab.config.validation import validated
    from trimtab.loop.cold_start import ColdStart

    tree = tables_of(settings)
    cold = tree.setdefault("cold", {})
    if isinstance(cold, dict) and not {"task", "demonstrations"} & set(cold):
        cold["task"] = EMBEDDED_TASK
    return validated(make_dataclass("Tables", [("cold", ColdStart)], frozen=True), tree).cold


def _tell(progress: Progress) -> None:
    from trimtab.cli.lines import duration

    left = progress.seconds / progress.update * (progress.updates - progress.update)
    say(
        f"update {progress.update:>{len(str(progress.updates))}}/{progress.updates}  loss {progress.loss:.4f}"
        f"  {progress.tokens} tokens  left {duration(left)}"
    )


def _compared(summary: ColdStartSummary) -> str:
    """Whether these are the task's weights in the package; nothing where the package has none."""
    from trimtab.loop.cold_start import weights_hash
    from trimtab.models import EMBEDDED, resolve_path

    try:
        folder = Path(resolve_path(f"{EMBEDDED}{summary.settings['task']}"))
    except DataError:
        return ""
    same = weights_hash(folder) == summary.sha256
    return f" ({'the same as' if same else 'not those of'} {EMBEDDED}{folder.name} in the package)"
