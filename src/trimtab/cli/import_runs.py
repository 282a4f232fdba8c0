"""Make a run directory of another trainer's run, so that doctor and dashboard can read it.

trimtab import output/ --to runs/theirs                      TRL: trainer_state.json and completions
trimtab import logs/ --to runs/theirs                        verl: the file logger's log and rollout dumps
trimtab import tb/ --from tensorboard --to runs/theirs       event files; a .csv file works the same way
trimtab import output/ --to runs/theirs algorithm.name=gspo  what no file says can be told as settings
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trimtab.cli.words import say

SHOWN = 12


def add(parser: argparse.ArgumentParser) -> None:
    """PATH, --to, --from, --algorithm, --group-size, --updates-per-step, --outcome, --scale."""
    parser.add_argument("path", type=Path, metavar="PATH", help="the other run's folder, or one of its files")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the new run's folder")
    parser.add_argument(
        "--from",
        dest="kind",
        choices=("trl", "verl", "tensorboard", "csv"),
        help="default: what PATH looks like",
    )
    parser.add_argument("--algorithm", metavar="NAME", help="the run's algorithm, such as grpo")
    parser.add_argument("--group-size", type=int, metavar="N", help="answers a prompt (default: counted)")
    parser.add_argument(
        "--updates-per-step", type=int, metavar="N", help="optimizer steps a generation (default: read off)"
    )
    parser.add_argument("--outcome", metavar="NAME", help="the reward function that says right or wrong")
    parser.add_argument(
        "--scale",
        nargs=2,
        type=float,
        metavar=("WRONG", "RIGHT"),
        help="the rewards of a wrong and of a right answer (default: 0 and 1, or the only two)",
    )


def main(args: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from trimtab.config import tables_of
    from trimtab.errors import SettingError
    from trimtab.record.importers import Imported, Wishes, import_run

    for name in ("group_size", "updates_per_step"):
        number = getattr(args, name)
        if number is not None and number < 1:
            raise SettingError(f"--{name.replace('_', '-')} must be >= 1, got {number}")
    if args.scale is not None and args.scale[0] >= args.scale[1]:
        raise SettingError(f"--scale takes the reward of a wrong answer first, got {args.scale}")
    tables: dict[str, Any] = tables_of(args.settings)
    if args.algorithm is not None:
        tables["algorithm"] = {"name": args.algorithm, **tables.get("algorithm", {})}
    wishes = Wishes(
        updates_per_step=args.updates_per_step,
        outcome=args.outcome,
        scale=None if args.scale is None else (args.scale[0], args.scale[1]),
        group_size=args.group_size,
    )
    done: Imported = import_run(args.path, args.to, kind=args.kind, wishes=wishes, tables=tables)
    say("\n".join(_lines(done)))
    return 0


def _lines(done: Any) -> list[str]:
    each = f", {done.updates_per_step} optimizer steps each" if done.updates_per_step > 1 else ""
    lines = [
        f"{done.path}: {done.steps:,} steps{each}, {len(done.keys)} metrics under trimtab's keys, "
        f"{done.answers:,} answers",
        *_listed("kept as they are, under imported/", done.kept),
        *([f"grades: {done.grades}"] if done.grades else []),
        *_listed("not told by any file (give them as settings)", done.unknown),
        *(f"left out: {complaint}" for complaint in done.complaints[:SHOWN]),
    ]
    if len(done.complaints) > SHOWN:
        lines.append(f"left out: {len(done.complaints) - SHOWN} more, listed in run.json")
    return lines


def _listed(what: str, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]
