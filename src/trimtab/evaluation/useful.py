"""Which share of groups could teach, at other group sizes than the one that was sampled.

A group of G answers is useful when it is neither all right nor all wrong. For a prompt with pass rate p:

    u(G) = 1 - p^G - (1 - p)^G

Up to the answers at hand it is counted without a model. For a prompt with c of n right, over all
ways to draw G of the n without replacement (unbiased for u(G), whatever p is):

    u(G) = 1 - (C(c, G) + C(n - c, G)) / C(n, G)            G <= n

Beyond that only a model can tell: a share z0 of prompts never succeeds, a share z1 always does, and the pass
rates of the others are Beta(m k, (1 - m) k):

    u(G) = (1 - z0 - z1) (1 - B(a + G, b) / B(a, b) - B(a, b + G) / B(a, b)),   a = m k, b = (1 - m) k

averaged over the posterior on a grid, with z0, z1 and m uniform and k log-uniform in [0.1, 100]. The
interval is the posterior's. A prompt that never succeeds and one that does so once in a thousand look alike
in a handful of answers; that is why it is wide.
Source: the count is the argument of pass@k, arXiv 2107.03374, eq. 1, for both outcomes.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, lgamma
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import SettingError
from trimtab.evaluation.estimators import bootstrap

Floats = NDArray[np.float64]

ENOUGH = 0.9
"""Share of prompts that must have G answers for u(G) to be counted instead of modelled."""

MEANS: Floats = (np.arange(33) + 0.5) / 33
CONCENTRATIONS: Floats = np.geomspace(0.1, 100.0, 25, dtype=np.float64)
LUMPS = np.arange(19) / 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsefulShare:
    """Share of groups of ``size`` answers that are mixed, with a 95% interval over prompts.

    method: "counted" (unbiased, no model) or "beta-binomial" (with lumps at 0 and 1).
    prompts: how many it rests on.
    """

    size: int
    value: float
    low: float
    high: float
    method: Literal["counted", "beta-binomial"]
    prompts: int

    @property
    def answers_each(self) -> float | None:
        """Answers sampled for one useful group, G / share; None where none is useful."""
        return self.size / self.value if self.value > 0 else None


def useful_at(n: int, c: int, size: int) -> float:
    """Chance that ``size`` answers drawn without replacement from n, c of them right, are not all alike.

    Range [0, 1]; 0 for a size of 1. Raises SettingError for size > n.
    """
    if not 1 <= size <= n:
        raise SettingError(f"a group of {size} needs at least {size} graded answers, this prompt has {n}")
    return 1.0 - min(1.0, (comb(c, size) + comb(n - c, size)) / comb(n, size))


def useful_share(successes: Sequence[int], trials: Sequence[int], sizes: Sequence[int]) -> list[UsefulShare]:
    """For each group size: the share of groups that are mixed, one entry of the first two for each prompt.

    Raises: SettingError for no prompt, counts that are impossible, or a group size below 1.
    """
    counts = np.asarray(successes, dtype=np.int64), np.asarray(trials, dtype=np.int64)
    if not len(counts[0]) or len(counts[0]) != len(counts[1]):
        raise SettingError("useful shares need at least one prompt, with its right and its graded answers")
    if ((counts[1] < 1) | (counts[0] < 0) | (counts[0] > counts[1])).any():
        raise SettingError("useful shares need 0 <= right answers <= graded answers, and one graded at least")
    if min(sizes, default=1) < 1:
        raise SettingError(f"a group has at least 1 answer, got {min(sizes)}")
    needs_model = [size for size in sizes if (counts[1] >= size).mean() < ENOUGH]
    posterior = _Posterior.of(*counts) if needs_model else None
    return [
        _counted(*counts, size) if size not in needs_model or posterior is None else posterior.at(size)
        for size in sizes
    ]


def _counted(successes: NDArray[np.int64], trials: NDArray[np.int64], size: int) -> UsefulShare:
    enough = trials >= size
    pairs = zip(trials[enough].tolist(), successes[enough].tolist(), strict=True)
    found = bootstrap(np.array([useful_at(n, c, size) for n, c in pairs]))
    return UsefulShare(
        size=size,
        value=found.value,
        low=found.low,
        high=found.high,
        method="counted",
        prompts=int(enough.sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Posterior:
    """Weights [betas, lumps] over the grid, adding up to 1; ``mixed`` [lumps] is 1 - z0 - z1."""

    a: Floats
    b: Floats
    mixed: Floats
    weights: Floats
    prompts: int

    @classmethod
    def of(cls, successes: NDArray[np.int64], trials: NDArray[np.int64]) -> _Posterior:
        a = (MEANS[:, None] * CONCENTRATIONS).ravel()
        b = ((1.0 - MEANS)[:, None] * CONCENTRATIONS).ravel()
        never, always = (lumps.ravel() for lumps in np.meshgrid(LUMPS, LUMPS))
        possible = never + always < 1.0 - 1e-9
        never, always = never[possible], always[possible]
        mixed = 1.0 - never - always
        pairs, times = np.unique(np.stack([successes, trials]), axis=1, return_counts=True)
        total = np.zeros((len(a), len(mixed)))
        for (c, n), count in zip(pairs.T.tolist(), times.tolist(), strict=True):
            ways = lgamma(n + 1) - lgamma(c + 1) - lgamma(n - c + 1)
            beta = np.exp(ways + _log_beta(a + c, b + n - c) - _log_beta(a, b))
            chance = beta[:, None] * mixed + never * (c == 0) + always * (c == n)
            total += count * np.log(np.maximum(chance, 1e-300))
        weights = np.exp(total - total.max())
        return cls(a, b, mixed, weights / weights.sum(), len(successes))

    def at(self, size: int) -> UsefulShare:
        base = _log_beta(self.a, self.b)
        right = np.exp(_log_beta(self.a + size, self.b) - base)
        wrong = np.exp(_log_beta(self.a, self.b + size) - base)
        shares = (np.clip(1.0 - right - wrong, 0.0, 1.0)[:, None] * self.mixed).ravel()
        order = np.argsort(shares)
        below = np.cumsum(self.weights.ravel()[order])
        low, high = (shares[order][min(np.searchsorted(below, q), len(shares) - 1)] for q in (0.025, 0.975))
        return UsefulShare(
            size=size,
            value=float((self.weights.ravel() * shares).sum()),
            low=float(low),
            high=float(high),
            method="beta-binomial",
            prompts=self.prompts,
        )


_log_gamma = np.vectorize(lgamma, otypes=[np.float64])


def _log_beta(a: Floats, b: Floats) -> Floats:
    return _log_gamma(a) + _log_gamma(b) - _log_gamma(a + b)
