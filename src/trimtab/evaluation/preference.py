"""How far a reward model's preferences agree with people's: accuracy, calibration, and the lure of length.

With d = r(chosen) - r(rejected), p = sigmoid(d / scale) is the model's chance that the chosen answer wins.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.evaluation.estimators import RESAMPLES, wilson

BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceBin:
    """Pairs of which the model was ``low`` to ``high`` sure: how many, mean certainty, how often right."""

    low: float
    high: float
    pairs: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFacts:
    """Lengths of the two answers in characters. Shares are of the pairs whose lengths differ.

    chosen_longer: how often people chose the longer answer; model_longer: how often the model does.
    accuracy_long, accuracy_short: the model's accuracy where people chose the longer, and the shorter one.
    None where there is no such pair.
    """

    pairs: int
    chosen_longer: float | None
    model_longer: float | None
    accuracy_long: float | None
    accuracy_short: float | None

    @property
    def rule(self) -> float | None:
        """The accuracy of always preferring the longer, or always the shorter answer, whichever is higher."""
        return None if self.chosen_longer is None else max(self.chosen_longer, 1.0 - self.chosen_longer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceReport:
    """What N held-out pairs say of a reward model.

    accuracy: share with p > 1/2, a tie counts half. interval: 95%, Wilson's where every pair has a prompt of
        its own, else a bootstrap over the prompts, since pairs of one prompt go right or wrong together.
    log_loss: mean of -ln p, nats. brier: mean of (1 - p)^2. ece: expected calibration error,
        sum over bins of share * |accuracy - confidence|, confidence = max(p, 1 - p).
    """

    pairs: int
    prompts: int
    accuracy: float
    interval: tuple[float, float]
    log_loss: float
    brier: float
    ece: float
    reliability: tuple[ConfidenceBin, ...]
    lengths: LengthFacts


def preference_report(
    rewards_N2: NDArray[np.float64],
    lengths_N2: Sequence[tuple[int, int]],
    prompts_N: Sequence[str],
    scale: float = 1.0,
) -> PreferenceReport:
    """The report on rewards of (chosen, rejected), their lengths, and a word for the prompt of each pair.

    Raises ValueError without a pair.
    """
    if not len(rewards_N2):
        raise ValueError("a report needs at least one pair")
    difference = (rewards_N2[:, 0] - rewards_N2[:, 1]) / scale
    won = np.where(difference == 0.0, 0.5, difference > 0.0)
    chance = np.exp(-np.logaddexp(0.0, -difference))
    confidence = np.maximum(chance, 1.0 - chance)
    reliability = tuple(_bins(confidence, won))
    accuracy = float(won.mean())
    count = len(won)
    return PreferenceReport(
        pairs=count,
        prompts=len(set(prompts_N)),
        accuracy=accuracy,
        interval=_interval(won, prompts_N),
        log_loss=float(np.logaddexp(0.0, -difference).mean()),
        brier=float(np.square(1.0 - chance).mean()),
        ece=sum(one.pairs / count * abs(one.accuracy - one.confidence) for one in reliability),
        reliability=reliability,
        lengths=_length_facts(difference, won, np.asarray(lengths_N2)),
    )


def _interval(won: NDArray[np.float64], prompts: Sequence[str]) -> tuple[float, float]:
    known = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    accuracy, count = float(won.mean()), len(known)
    if count == len(won) or accuracy in (0.0, 1.0):
        return wilson(accuracy, count)  # all right or all wrong has no width in a bootstrap
    place = np.array([known[prompt] for prompt in prompts])
    right, pairs = np.bincount(place, weights=won), np.bincount(place)
    picks = np.random.default_rng(0).integers(0, count, size=(RESAMPLES, count))
    low, high = np.percentile(right[picks].sum(axis=1) / pairs[picks].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)


def chosen_longer(lengths_N2: Sequence[tuple[int, int]]) -> float | None:
    """How often the chosen answer is the longer one, among pairs that differ in length; None without such."""
    differing = [chosen > rejected for chosen, rejected in lengths_N2 if chosen != rejected]
    return sum(differing) / len(differing) if differing else None


def _bins(confidence: NDArray[np.float64], won: NDArray[np.float64]) -> list[ConfidenceBin]:
    """Bins of equal width over [1/2, 1]; empty ones are left out."""
    edges = np.linspace(0.5, 1.0, BINS + 1)
    place = np.clip(np.digitize(confidence, edges) - 1, 0, BINS - 1)
    return [
        ConfidenceBin(
            low=float(edges[k]),
            high=float(edges[k + 1]),
            pairs=int((place == k).sum()),
            confidence=float(confidence[place == k].mean()),
            accuracy=float(won[place == k].mean()),
        )
        for k in range(BINS)
        if (place == k).any()
    ]


def _length_facts(
    difference: NDArray[np.float64], won: NDArray[np.float64], lengths: NDArray[np.int64]
) -> LengthFacts:
    longer, shorter = lengths[:, 0] > lengths[:, 1], lengths[:, 0] < lengths[:, 1]
    differing = longer | shorter
    liked = np.where(longer, difference > 0.0, difference < 0.0)

    def share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
        return float(of[among].mean()) if among.any() else None

    return LengthFacts(
        pairs=int(differing.sum()),
        chosen_longer=share(longer, differing),
        model_longer=share(liked, differing),
        accuracy_long=float(won[longer].mean()) if longer.any() else None,
        accuracy_short=float(won[shorter].mean()) if shorter.any() else None,
    )
