"""Evaluate a run's checkpoint, or any model, on held-out prompts.

trimtab eval runs/quickstart                                  the last checkpoint
trimtab eval runs/quickstart --step 50 evaluation.samples=16  another one, with more answers
trimtab eval path/to/model --recipe quickstart                a model, on a recipe's prompts and graders
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import say
from trimtab.errors import SettingError

if TYPE_CHECKING:
    from trimtab.config import Run


def add(parser: argparse.ArgumentParser) -> None:
    """RUN_OR_MODEL, --recipe, --step, --json, --plain."""
    parser.add_argument("target", metavar="RUN_OR_MODEL", help="a run's folder, a model's folder or hub name")
    parser.add_argument("--recipe", action="append", default=[], metavar="RECIPE", help="needed for a model")
    parser.add_argument("--step", type=int, metavar="N", help="the run's checkpoint of this step")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    parser.add_argument("--plain", action="store_true", help="no live view")


def main(args: argparse.Namespace) -> int:
    """Evaluate and print pass@k with its intervals."""
    from trimtab import launch
    from trimtab.cli.lines import evaluation_line
    from trimtab.cli.view import choose_view

    run, folder = _target(args)
    view = choose_view(plain=args.plain or args.json, out=sys.stderr if args.json else sys.stdout)
    try:
        result = launch.evaluate(run, folder=folder, step=args.step, view=view)
    finally:
        view.close()
    say(json.dumps(result) if args.json else evaluation_line("result", result))
    return 0


def _target(args: argparse.Namespace) -> tuple[Run, Path | None]:
    """The run whose prompts, graders and sampler count, and the folder of its checkpoints if it has one."""
    from trimtab.cli.train import stored_run
    from trimtab.config import overridden, resolve

    folder = Path(args.target)
    if (folder / "run.json").exists():
        if args.recipe:
            raise SettingError(f"{folder} is a run and has its own recipe; leave --recipe out")
        return overridden(stored_run(folder), args.settings), folder
    if not args.recipe:
        raise SettingError(
            f"{args.target} is no run (it holds no run.json); a model needs --recipe RECIPE for its prompts"
        )
    if args.step is not None:
        raise SettingError("--step chooses a run's checkpoint; a model has none")
    return resolve(args.recipe, [*args.settings, f"model.path={json.dumps(args.target)}"]), None
