"""Robust statistics of short, noisy courses: medians and ranks only, so that no single step decides."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.record.history import Series

Values = NDArray[np.float64]

MAX_PAIRS_FROM = 240
"""Longer courses are thinned to this many steps before pairs of steps are compared."""

GAUSS = 1.4826
"""A Gaussian's standard deviation over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a metric went: its own start against now, and whether it moved in between.

    start, now: medians of the first and last ``window`` steps; ``start_steps`` and ``now_steps`` are the
    steps those are of. peak, low: largest and smallest running median. slope: Theil-Sen, per step.
    tau: Kendall's rank correlation with time, in [-1, 1]; p: of no trend (Mann-Kendall, two-sided).
    spread: of the values about their own line, as a standard deviation (from the MAD).
    """

    count: int
    start: float
    now: float
    peak: float
    low: float
    slope: float
    tau: float
    p: float
    spread: float
    start_steps: tuple[int, int]
    now_steps: tuple[int, int]

    @property
    def change(self) -> float:
        return self.now - self.start

    @property
    def rises(self) -> bool:
        """A trend upwards that chance explains in one run of fifty, or less often."""
        return self.p < 0.02 and self.tau > 0.0 and self.now > self.start

    @property
    def falls(self) -> bool:
        return self.p < 0.02 and self.tau < 0.0 and self.now < self.start

    def factor(self, floor: float = 1e-12) -> float:
        """now / start, with both at least ``floor``."""
        return max(self.now, floor) / max(self.start, floor)


def window_of(count: int) -> int:
    """Steps in the medians at both ends of a course: a fifth of it, at least 3, at most 25."""
    return min(max(3, count // 5), 25, max(1, count))


def course_of(series: Series) -> Course | None:
    """The course of a metric; None where it has no value at all."""
    values, steps = series.values, series.steps
    count = len(values)
    if not count:
        return None
    size = window_of(count)
    medians = running_median(values, size)
    thin = np.unique(np.linspace(0, count - 1, min(count, MAX_PAIRS_FROM)).astype(np.int64))
    slope, tau, p = trend(steps[thin].astype(np.float64), values[thin])
    left = values[thin] - slope * steps[thin]
    return Course(
        count=count,
        start=float(np.median(values[:size])),
        now=float(np.median(values[-size:])),
        peak=float(medians.max()),
        low=float(medians.min()),
        slope=slope,
        tau=tau,
        p=p,
        spread=mad(left),
        start_steps=(int(steps[0]), int(steps[size - 1])),
        now_steps=(int(steps[-size]), int(steps[-1])),
    )


def mad(values: Values) -> float:
    """The spread about the median as a Gaussian's standard deviation; 0 for a single value."""
    return float(GAUSS * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def running_median(values: Values, size: int) -> Values:
    """Median of every ``size`` values in a row."""
    if len(values) <= size:
        return np.array([np.median(values)], dtype=np.float64)
    return np.median(np.lib.stride_tricks.sliding_window_view(values, size), axis=1)


def trend(x: Values, y: Values) -> tuple[float, float, float]:
    """(Theil-Sen slope, Kendall's tau, its two-sided p) of y over x; fewer than four values: no trend.

    p is Mann-Kendall's normal approximation, corrected for ties.
    """
    n = len(y)
    if n < 4:
        return 0.0, 0.0, 1.0
    first, second = np.triu_indices(n, k=1)
    rise, run = y[second] - y[first], x[second] - x[first]
    slope = float(np.median(rise / run))
    score = float(np.sign(rise).sum())
    _, ties = np.unique(y, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18.0
    if variance <= 0.0:
        return slope, 0.0, 1.0
    z = (abs(score) - 1.0) / math.sqrt(variance) if score else 0.0
    return slope, score / (n * (n - 1) / 2), math.erfc(max(z, 0.0) / math.sqrt(2.0))


def correlation(x: Values, y: Values) -> float | None:
    """Pearson's r; None where one of them is constant or fewer than four pairs are given."""
    if len(x) < 4:
        return None
    a, b = x - x.mean(), y - y.mean()
    size = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / size if size > 1e-12 else None
