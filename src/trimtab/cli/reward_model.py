"""Train a reward model (Bradley-Terry) from pairs of preferred answers; the grader reward-model reads it.

trimtab reward-model pairs.jsonl --model org/model --to models/liked
trimtab reward-model pairs.jsonl --model org/model --to models/liked preference.epochs=2 preference.batch=64
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import say

if TYPE_CHECKING:
    from trimtab.evaluation.preference import LengthFacts, PreferenceReport
    from trimtab.loop.reward_model import PairFacts
    from trimtab.trainer.preference import PreferenceConfig, PreferenceProgress

LINES = 20
"""Lines of progress, at most."""


def add(parser: argparse.ArgumentParser) -> None:
    """The pairs, --model and --to; everything else is a setting of the table ``preference``."""
    parser.add_argument("pairs", type=Path, metavar="PAIRS", help="JSON Lines with prompt, chosen, rejected")
    parser.add_argument("--model", required=True, help="the language model or reward model to start from")
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="the folder to write, not there yet"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def main(args: argparse.Namespace) -> int:
    """Train, and say how far the model agrees with the pairs it has not seen."""
    import json
    from dataclasses import asdict

    from trimtab.loop.reward_model import make_reward_model

    config = settings_of(args.settings, args.model)
    if args.json:
        print(json.dumps(asdict(make_reward_model(args.pairs, config, args.to)), indent=2))
        return 0
    summary = make_reward_model(args.pairs, config, args.to, told=_tell_facts, progress=_tell_progress)
    say(f"before the training: {accuracy_text(summary.before)}")
    for line in report_lines(summary.report):
        say(line)
    say(f"reward model written to {args.to}; in a recipe:")
    say(f'  graders = [{{name = "reward-model", options = {{path = "{args.to}"}}}}]')
    return 0


def settings_of(settings: Sequence[str], model: str) -> PreferenceConfig:
    """The training that settings ``preference.KEY=VALUE`` describe. Raises SettingError like a recipe's."""
    from dataclasses import make_dataclass

    from trimtab.config import tables_of
    from trimtab.config.validation import validated
    from trimtab.errors import SettingError
    from trimtab.trainer.preference import PreferenceConfig

    tree = tables_of(settings)
    table = tree.setdefault("preference", {})
    if isinstance(table, dict):
        if "model" in table:
            raise SettingError("the model to start from is given by --model, not by preference.model")
        table["model"] = model
    return validated(
        make_dataclass("Tables", [("preference", PreferenceConfig)], frozen=True), tree
    ).preference


def report_lines(report: PreferenceReport) -> list[str]:
    """The report as a person reads it: accuracy, calibration with its table, and the lure of length."""
    lines = [
        f"held out: {accuracy_text(report)}",
        f"calibration: log loss {report.log_loss:.4f} nats (a coin has 0.6931), Brier {report.brier:.4f}, "
        f"expected error {report.ece:.4f}",
        "  sure of       pairs  sure on average  right",
    ]
    lines += [
        f"  {one.low:.0%} to {one.high:<5.0%}{one.pairs:>8}{one.confidence:>17.1%}{one.accuracy:>7.1%}"
        for one in report.reliability
    ]
    return [*lines, *_length_lines(report.lengths)]


def accuracy_text(report: PreferenceReport) -> str:
    """Accuracy with its interval and what it is of."""
    low, high = report.interval
    of = f"{report.pairs} pairs of {report.prompts} prompts"
    return f"accuracy {report.accuracy:.3f} [{low:.3f}, {high:.3f}] on {of}"


def _length_lines(lengths: LengthFacts) -> list[str]:
    if lengths.chosen_longer is None or lengths.rule is None:
        return ["length: no held-out pair differs in length"]
    return [
        f"length: people chose the longer answer in {lengths.chosen_longer:.1%} of {lengths.pairs} pairs, "
        f"the model does in {_share(lengths.model_longer)}; length alone would reach {lengths.rule:.1%}",
        f"  right where the longer was chosen {_share(lengths.accuracy_long)}, where the shorter was "
        f"{_share(lengths.accuracy_short)}",
    ]


def _share(value: float | None) -> str:
    return "in no pair" if value is None else f"{value:.1%}"


def _tell_facts(facts: PairFacts) -> None:
    left = [(facts.identical, "with equal answers"), (facts.too_long, "too long")]
    out = "".join(f", {count} {why} left out" for count, why in left if count)
    torn = ", an unfinished last line ignored" if facts.torn else ""
    say(f"{facts.train} pairs to train on, {facts.held_out} held out, {facts.prompts} prompts{out}{torn}")
    if facts.chosen_longer is not None:
        say(f"the longer answer was chosen in {facts.chosen_longer:.1%} of the pairs that differ in length")


def _tell_progress(progress: PreferenceProgress) -> None:
    every = max(1, -(-progress.updates // LINES))
    if progress.update % every == 0 or progress.update == progress.updates:
        say(
            f"update {progress.update:>{len(str(progress.updates))}}/{progress.updates}  "
            f"loss {progress.loss:.4f}  ranked right {progress.accuracy:.2f}"
        )
