"""Ask whether a run will learn, and what it will cost, before spending on it.

trimtab preflight quickstart                     a recipe, with the settings it would train with
trimtab preflight mine.toml --answers 512        from more answers of the real model
trimtab preflight mine.toml --fail-on warning    exit code 1 on warnings as well (default: critical)

Nothing is written. Exit code 0: go; 1: something is as bad as --fail-on says; 2: the recipe is wrong.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trimtab.cli.words import say
from trimtab.errors import SettingError

if TYPE_CHECKING:
    from trimtab.config import Run
    from trimtab.doctor.preflight import Check, Preflight, Subject

FAILED = 1
MARKS = {"critical": "✗", "warning": "!", "note": "·", "ok": "✓", "skipped": "?"}


def add(parser: argparse.ArgumentParser) -> None:
    """RECIPE ..., --answers, --seconds, --json, --fail-on."""
    parser.add_argument("recipes", nargs="+", metavar="RECIPE", help="names or TOML files, later ones count")
    parser.add_argument("--answers", type=int, default=256, metavar="N", help="answers to draw (256)")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="sampling time (120)")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON and nothing else")
    parser.add_argument(
        "--fail-on",
        choices=("critical", "warning", "never"),
        default="critical",
        help="exit code 1 from here on",
    )


def main(args: argparse.Namespace) -> int:
    """Resolve the run, look, print, and answer by exit code."""
    if args.answers < 1 or not args.seconds > 0.0:
        raise SettingError("--answers must be >= 1 and --seconds > 0")
    from trimtab.config import resolve
    from trimtab.doctor.preflight import Budget, preflight

    run = resolve(args.recipes, args.settings)
    budget = Budget(answers=args.answers, seconds=args.seconds)
    say(
        f"loading {run.model.path}; then {args.answers} answers, sampled for about {args.seconds:g} s at "
        "most, and one update",
        sys.stderr,
    )
    found = asyncio.run(preflight(_subject(run), budget))
    if args.json:
        print(json.dumps(found.to_json()))
    else:
        for line in lines(found):
            say(line, sys.stdout)
    bad = {"critical": ("critical",), "warning": ("critical", "warning"), "never": ()}[args.fail_on]
    return FAILED if found.worst in bad else 0


def lines(found: Preflight) -> Iterator[str]:
    """The checks as a person reads them, the verdict last, where the eye rests."""
    for check in found.checks:
        yield from _check_lines(check)
    yield ""
    yield found.verdict


def _check_lines(check: Check) -> Iterator[str]:
    yield f"{MARKS[check.level]} {check.name:<17} {check.says}"
    for shown in check.shown:
        yield f"{'':<20} {shown}"
    if check.advice:
        yield f"{'':<18} → {check.advice}"


def _subject(run: Run) -> Subject:
    from trimtab import launch
    from trimtab.doctor.preflight import Subject
    from trimtab.doctor.preflight.cost import Plan
    from trimtab.models import load_model
    from trimtab.rewards.build import build_rubric
    from trimtab.rollout.local import LocalEngine

    model = load_model(run.model.path, device=run.model.device, dtype=run.model.dtype)
    rubric = build_rubric(run.reward)
    prompts, problems = launch.prompts_of(run, model, rubric)
    return Subject(
        model=model,
        prompts=prompts,
        problems=tuple(problems),
        rubric=rubric,
        engine=LocalEngine(model, fast=run.sampling.fast),
        trainer=launch.trainer_of(run, model),
        algorithm=run.build_algorithm(),
        sampling=run.sampling.sampler(),
        plan=Plan(
            steps=run.run.steps,
            prompts=run.sampling.prompts_per_step,
            samples=run.sampling.samples_per_prompt,
            epochs=run.trainer.epochs,
            max_new_tokens=run.sampling.max_new_tokens,
        ),
        seed=run.run.seed,
    )
