"""How many groups would hold right and wrong answers at another group size, from recorded pass rates.

Up to the number of answers a prompt has, no model is needed: of its n answers, c right, a group of G drawn
without replacement is mixed with the chance

    useful(n, c, G) = 1 - [C(c, G) + C(n - c, G)] / C(n, G)                   (unbiased, as pass@k is)

Beyond it the pass rates of the prompts are taken to be Beta(a, b) distributed, and

    useful(a, b, G) = 1 - E[p^G] - E[(1 - p)^G] = 1 - B(a + G, b) / B(a, b) - B(a, b + G) / B(a, b)

is averaged over a grid of (a, b), each weighted by how well it explains the counts (beta-binomial likelihood,
flat over the mean a / (a + b) and over log(a + b)).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trimtab.errors import SettingError
from trimtab.evaluation.estimators import bootstrap

MEANS = np.linspace(0.0025, 0.9975, 100)
PRECISIONS = np.geomspace(0.05, 500.0, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsefulShare:
    """Expected share of useful groups of ``size`` answers, with its 95% interval.

    method: ``counted`` without a model, or ``beta-binomial`` where the size exceeds the answers there are.
    """

    size: int
    value: float
    low: float
    high: float
    method: Literal["counted", "beta-binomial"]


def useful_at(n: int, c: int, size: int) -> float:
    """Chance that ``size`` answers drawn without replacement from n, c of them right, are not all alike.

    Range [0, 1]; 0 for a size of 1. Raises SettingError for size > n.
    """
    if not 1 <= size <= n:
        raise SettingError(f"a group of {size} needs at least {size} graded answers, this prompt has {n}")
    return 1.0 - min(1.0, (comb(c, size) + comb(n - c, size)) / comb(n, size))


def useful_share(successes: Sequence[int], trials: Sequence[int], sizes: Sequence[int]) -> list[UsefulShare]:
    """The expected share of useful groups for each size, over prompts with these counts.

    successes, trials: right and graded answers of each prompt, same order. An answer counts as right or
    not; partial credit is not right. A size is counted where every prompt has that many answers.
    Raises SettingError without prompts, or where a prompt has more successes than trials.
    """
    if not trials or len(successes) != len(trials):
        raise SettingError("the share of useful groups needs at least one prompt with graded answers")
    if any(not 0 <= c <= n or n < 1 for c, n in zip(successes, trials, strict=True)):
        raise SettingError("a prompt has fewer graded answers than right ones, or none")
    return [_share(successes, trials, size) for size in sizes]


def _share(successes: Sequence[int], trials: Sequence[int], size: int) -> UsefulShare:
    if size <= min(trials):
        values = [useful_at(n, c, size) for c, n in zip(successes, trials, strict=True)]
        found = bootstrap(np.array(values))
        return UsefulShare(size=size, value=found.value, low=found.low, high=found.high, method="counted")
    a, b, weights = _posterior(successes, trials)
    shares = 1.0 - np.exp(_log_beta(a + size, b) - _log_beta(a, b))
    shares -= np.exp(_log_beta(a, b + size) - _log_beta(a, b))
    order = np.argsort(shares)
    below = np.cumsum(weights[order])
    low, high = (float(shares[order][np.searchsorted(below, q)]) for q in (0.025, 0.975))
    value = float((weights * shares).sum())
    return UsefulShare(size=size, value=value, low=low, high=high, method="beta-binomial")


def _posterior(
    successes: Sequence[int], trials: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(a, b, weight) of every point of the grid; weights sum to 1."""
    mean, precision = (grid.ravel() for grid in np.meshgrid(MEANS, PRECISIONS))
    a, b = mean * precision, (1.0 - mean) * precision
    fit = np.zeros_like(a)
    for (c, n), prompts in Counter(zip(successes, trials, strict=True)).items():
        fit += prompts * (_log_beta(a + c, b + (n - c)) - _log_beta(a, b))
    weights = np.exp(fit - fit.max())
    return a, b, weights / weights.sum()


def _log_beta(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    return (torch.lgamma(left) + torch.lgamma(right) - torch.lgamma(left + right)).numpy()
