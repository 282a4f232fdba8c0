"""Predict what a step takes on other hardware, and how to split it between sampling and training.

trimtab plan mine.toml --gpus 16 --hardware h100               a recipe on 16 GPUs, by data sheet
trimtab plan mine.toml --gpus 16 --from runs/mine              lengths and keep rate of a recorded run
trimtab plan --from runs/quickstart                            the run's own cores, costs measured in it
trimtab plan --params 32B --active 3B --gpus 64 --lengths 4000,3000,16384    no recipe: numbers

Every input is printed as measured, computed or assumed; predictions of what was never timed say so.
docs/plan.md has the formulas and how far predictions were off. Nothing is written.
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
    from trimtab.planning.asked import Asked


def add(parser: argparse.ArgumentParser) -> None:
    """RECIPE ..., what replaces parts of it, --json."""
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="names or TOML files, later ones count")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs, or processes where --hardware is a CPU")
    parser.add_argument(
        "--hardware",
        metavar="NAME",
        help="a100, h100, h200, b200, here (probe), or a TOML file with its limits",
    )
    parser.add_argument(
        "--from",
        type=Path,
        action="append",
        default=[],
        dest="runs",
        metavar="RUN",
        help="a measured run; several",
    )
    parser.add_argument("--costs", type=Path, metavar="FILE", help="stage costs in seconds, as TOML")
    parser.add_argument("--params", metavar="N", help="parameters such as 7B, instead of the recipe's model")
    parser.add_argument("--active", metavar="N", help="parameters that a token uses (mixture of experts)")
    parser.add_argument(
        "--lengths",
        metavar="MEAN,SD[,LIMIT]",
        help="answer lengths, where no run says (limit: max_new_tokens)",
    )
    parser.add_argument("--prompt", type=float, metavar="T", help="mean tokens of a prompt")
    parser.add_argument("--keep-rate", type=float, metavar="P", help="share of groups that selection keeps")
    parser.add_argument(
        "--staleness",
        type=int,
        action="append",
        metavar="S",
        help="updates between sampling and training (0 and 1)",
    )
    parser.add_argument(
        "--in-flight", choices=("drain", "update"), help="what new weights do to running answers"
    )
    parser.add_argument("--engine", choices=("local", "vllm"), help="what samples")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME=X", help="another assumption")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated lengths (0)")
    parser.add_argument("--all", action="store_true", help="every split that was simulated")
    parser.add_argument("--json", action="store_true", help="everything as JSON and nothing else")


def main(args: argparse.Namespace) -> int:
    """Ask, simulate, tell."""
    from trimtab.planning.asked import figures_of, question_of
    from trimtab.planning.splits import options
    from trimtab.planning.words import SHOWN, inputs, table, to_json, verdict

    asked = _asked(args)
    question = question_of(asked)
    found = options(question)
    figures = figures_of(question)
    if args.json:
        print(json.dumps(to_json(question, found, figures)))
        return 0
    for line in inputs(figures):
        say(line, sys.stdout)
    say("", sys.stdout)
    for line in table(found, len(found) if args.all else SHOWN):
        say(line, sys.stdout)
    say("", sys.stdout)
    for line in verdict(question, found):
        say(line, sys.stdout)
    return 0


def _asked(args: argparse.Namespace) -> Asked:
    from trimtab.planning.asked import Asked

    if not (args.recipes or args.runs or args.params):
        raise SettingError("give a recipe, --from a recorded run, or --params; trimtab plan --help shows all")
    return Asked(
        recipes=tuple(args.recipes),
        settings=tuple(args.settings),
        gpus=args.gpus,
        hardware=args.hardware,
        runs=tuple(args.runs),
        parameters=args.params,
        active=args.active,
        lengths=args.lengths,
        prompt=args.prompt,
        keep_rate=args.keep_rate,
        stalenesses=tuple(sorted(set(args.staleness))) if args.staleness else None,
        in_flight=args.in_flight,
        engine=args.engine,
        assume=tuple(args.assume),
        costs=args.costs,
        seed=args.seed,
    )
