"""Estimators over prompts: pass@k, maj@k, bootstrap intervals, and a paired comparison.

Prompts are what is sampled from the world, so every interval resamples prompts, never single
answers: 8 answers to one prompt are not 8 independent pieces of evidence.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import SettingError

RESAMPLES = 4000
Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over prompts with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference (later minus earlier) over the same prompts; ``verdict`` in plain words."""

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "not distinguishable"


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k answers drawn without replacement from n, of which c are right, hold a right one.

        pass@k = 1 - C(n - c, k) / C(n, k)        range [0, 1]

    Raises SettingError for k > n: it cannot be estimated without bias.
    Source: arXiv 2107.03374, eq. 1.
    """
    if not 1 <= k <= n:
        raise SettingError(f"pass@{k} needs at least {k} graded answers a prompt, this prompt has {n}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def majority_at_k(
    answers: Sequence[str | None], right: Sequence[bool], k: int, rng: np.random.Generator
) -> float:
    """How often a vote among k answers goes to a right one; a tie counts by the share of tied answers right.

    For k = n the vote is exact; below it is the mean over 64 seeded draws without replacement.
    An answer that could not be read (None) abstains.
    """
    if not 1 <= k <= len(answers):
        raise SettingError(
            f"maj@{k} needs at least {k} graded answers a prompt, this prompt has {len(answers)}"
        )
    if k == len(answers):
        return _vote(answers, right, range(k))
    draws = [rng.permutation(len(answers))[:k] for _ in range(64)]
    return float(np.mean([_vote(answers, right, draw.tolist()) for draw in draws]))


def _vote(answers: Sequence[str | None], right: Sequence[bool], chosen: Sequence[int]) -> float:
    votes = Counter(answers[i] for i in chosen if answers[i] is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    tied = {answer for answer, count in votes.items() if count == most}
    return len({answers[i] for i in chosen if answers[i] in tied and right[i]}) / len(tied)


def bootstrap(values_P: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Mean over prompts with the 95% percentile interval of ``RESAMPLES`` seeded resamples.

    Where all prompts have the same value 0 or 1 a bootstrap has no width; Wilson's interval over
    the prompts stands in, so that 20 of 20 right does not read as certainty.
    """
    if len(values_P) == 0:
        raise SettingError(
            "an evaluation without a single graded prompt has no value; look at the grader's failures"
        )
    mean = float(values_P.mean())
    if mean in (0.0, 1.0):
        low, high = wilson(mean, len(values_P))
        return Estimate(mean, low, high)
    low, high = np.percentile(_resampled_means(values_P, seed), [2.5, 97.5])
    return Estimate(mean, float(low), float(high))


def paired(later_P: NDArray[np.float64], earlier_P: NDArray[np.float64], seed: int = 0) -> Paired:
    """Mean difference over the same prompts, in the same order, with its 95% bootstrap interval."""
    if later_P.shape != earlier_P.shape:
        raise ValueError(f"paired values differ in shape: {later_P.shape} and {earlier_P.shape}")
    difference_P = later_P - earlier_P
    low, high = np.percentile(_resampled_means(difference_P, seed), [2.5, 97.5])
    return Paired(float(difference_P.mean()), float(low), float(high))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of n independent trials."""
    centre = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * sqrt(share * (1 - share) / n + Z_95**2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def _resampled_means(values_P: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(values_P), size=(RESAMPLES, len(values_P)))
    return values_P[picks].mean(axis=1)
