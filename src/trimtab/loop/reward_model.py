"""From a file of pairs to a folder that the grader ``reward-model`` reads: train, measure, write."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import DataError, RunError, SettingError
from trimtab.evaluation.preference import PreferenceReport, chosen_longer, preference_report
from trimtab.rewards.classifier import Classifier
from trimtab.rewards.model import CARD
from trimtab.rewards.pairs import Pair, read_pairs
from trimtab.trainer.preference import (
    PreferenceConfig,
    PreferenceProgress,
    load_start,
    score,
    split,
    train,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """What a file holds before anything is trained.

    train, held_out: pairs on either side. prompts: different ones. identical: rows left out because both
    answers, or what is read of them, are equal. too_long: left out for the model's context. torn: bytes of an
    unfinished last line. chosen_longer: see ``LengthFacts``.
    """

    train: int
    held_out: int
    prompts: int
    identical: int
    too_long: int
    torn: int
    chosen_longer: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelSummary:
    """What was made; stored as ``reward_model.json`` beside the weights.

    form, reads, centre, scale: what the grader takes from it. centre is the mean reward of the held-out
    answers. report: on the held-out pairs; before: the same for the model as it started.
    """

    form: str
    reads: str
    centre: float
    scale: float
    settings: dict[str, Any]
    facts: PairFacts
    before: PreferenceReport
    report: PreferenceReport
    losses: tuple[float, ...]
    seconds: float


def make_reward_model(
    pairs: Path,
    config: PreferenceConfig,
    folder: Path,
    told: Callable[[PairFacts], None] = lambda _: None,
    progress: Callable[[PreferenceProgress], None] = lambda _: None,
) -> RewardModelSummary:
    """Train on a file of pairs and write the model with its card to ``folder``, which must not be there yet.

    ``told`` hears the facts of the file before the training. The pairs are those that the file holds now.
    Raises SettingError and DataError before anything is trained, RunError where the training breaks.
    """
    aside = _aside(folder)
    try:
        model, summary = _trained(pairs, config, told, progress)
        model.module.save_pretrained(aside)
        model.tokenizer.save_pretrained(aside)
        (aside / CARD).write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return summary


def _aside(folder: Path) -> Path:
    """An empty folder beside it, made before the training: a place that cannot be written costs nothing."""
    if folder.exists():
        raise SettingError(f"{folder} is already there; remove it first, or name another folder")
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
    except OSError as fault:
        raise SettingError(f"{folder} cannot be written: {fault.strerror}; name another folder") from None
    return aside


def _trained(
    pairs: Path,
    config: PreferenceConfig,
    told: Callable[[PairFacts], None],
    progress: Callable[[PreferenceProgress], None],
) -> tuple[Classifier, RewardModelSummary]:
    found = read_pairs(pairs)
    if not found.pairs:
        raise DataError(f"{pairs} holds no pair of different answers")
    model = load_start(config)
    sides = split(found.pairs, model, config)
    used = [compared.pair for compared in (*sides.train, *sides.held_out)]
    facts = PairFacts(
        train=len(sides.train),
        held_out=len(sides.held_out),
        prompts=len({repr(pair.prompt) for pair in used}),
        identical=found.identical + sides.equal,
        too_long=sides.too_long,
        torn=found.torn,
        chosen_longer=chosen_longer(_lengths(used)),
    )
    told(facts)
    held_out = [compared.pair for compared in sides.held_out]
    known = _lengths(held_out), [repr(pair.prompt) for pair in held_out]
    started_N2 = score(model, sides.held_out, config.micro_batch).numpy()
    if not np.isfinite(started_N2).all():
        raise DataError(
            f"{config.model} scores held-out answers with numbers that are not finite; its weights are broken"
        )
    before = preference_report(started_N2, *known)
    began = time.perf_counter()
    losses = train(model, sides.train, config, progress)
    seconds = time.perf_counter() - began
    rewards_N2 = score(model, sides.held_out, config.micro_batch).numpy()
    if not np.isfinite(rewards_N2).all():
        raise RunError(
            "the trained model scores held-out answers with numbers that are not finite; lower learning_rate"
        )
    return model, RewardModelSummary(
        form=config.form,
        reads=config.reads,
        centre=float(rewards_N2.mean()),
        scale=1.0,
        settings=asdict(config),
        facts=facts,
        before=before,
        report=preference_report(rewards_N2, *known),
        losses=tuple(losses),
        seconds=seconds,
    )


def _lengths(pairs: list[Pair]) -> list[tuple[int, int]]:
    return [(len(pair.chosen), len(pair.rejected)) for pair in pairs]
