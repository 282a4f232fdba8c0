"""Histograms with fixed, documented bins: they merge exactly, and quantiles come with their error."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.metrics.values import OVERFLOW_IS_NAMED, Array, Numbers, count_nonfinite, floats

Counts = NDArray[np.int64]
Scale = Literal["linear", "log", "ratio"]


@dataclass(frozen=True, slots=True)
class Bins:
    """Where the edges of a histogram lie. A bin holds its lower edge; the last one holds both.

        linear   low + i * (high - low) / steps                          i = 0 .. steps
        log      low * (high / low)^(i / steps)                          i = 0 .. steps, low > 0
        ratio    exp(-m_steps) .. exp(-m_0), exp(m_0) .. exp(m_steps)    m_i = low * (high / low)^(i / steps)

    ``ratio`` is symmetric about 1 and as fine near 1 as |log r| is small: one middle bin for
    |log r| < low, then ``steps`` bins on each side up to |log r| = high.
    """

    scale: Scale
    low: float
    high: float
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.low < self.high or (self.scale != "linear" and self.low <= 0.0):
            raise ValueError(f"no histogram can have these bins: {self}")

    @property
    def edges(self) -> Array:
        """The ``size + 1`` edges, ascending, read-only."""
        return _edges(self)

    @property
    def size(self) -> int:
        return 2 * self.steps + 1 if self.scale == "ratio" else self.steps

    def middle(self, low: float, high: float) -> float:
        """The value that stands for all between low and high: the mean, geometric but on a linear scale."""
        if self.scale == "linear" or low <= 0.0:
            return 0.5 * (low + high)
        return math.sqrt(low) * math.sqrt(high)


@lru_cache(maxsize=128)
def _edges(bins: Bins) -> Array:
    i = np.arange(bins.steps + 1) / bins.steps
    if bins.scale == "linear":
        edges = bins.low + i * (bins.high - bins.low)
    else:
        edges = bins.low * np.exp(i * math.log(bins.high / bins.low))
    if bins.scale == "ratio":
        edges = np.concatenate([np.exp(-edges[::-1]), np.exp(edges)])
    edges.setflags(write=False)
    return edges


class Bracket(NamedTuple):
    """The true quantile lies in [low, high], both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts of values in fixed bins, and their exact number, sum, smallest and largest.

    ``counts`` [bins.size] int64, read-only; ``below`` and ``above`` lie outside the edges;
    ``value`` is the exact mean. NaN and infinities are in ``nonfinite`` and nowhere else.
    """

    bins: Bins
    counts: Counts
    below: int = 0
    above: int = 0
    total: float = 0.0
    smallest: float | None = None
    largest: float | None = None
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers, bins: Bins) -> Histogram:
        numbers = floats(values)
        bad = count_nonfinite(numbers)
        if bad:
            numbers = numbers[np.isfinite(numbers)]
        place = np.searchsorted(bins.edges, numbers, side="right")
        place[numbers == bins.edges[-1]] = bins.size
        counts = np.bincount(place, minlength=bins.size + 2)
        return cls(
            bins,
            _frozen(counts[1:-1]),
            int(counts[0]),
            int(counts[-1]),
            float(numbers.sum()),
            float(numbers.min()) if numbers.size else None,
            float(numbers.max()) if numbers.size else None,
            bad,
        )

    @property
    def count(self) -> int:
        """Finite values seen, those outside the edges included."""
        return int(self.counts.sum()) + self.below + self.above

    @property
    def value(self) -> float | None:
        count = self.count
        return self.total / count if count and not self.nonfinite else None

    def __add__(self, other: Histogram) -> Histogram:
        if self.bins != other.bins:
            raise ValueError(f"histograms merge only over the same bins, got {self.bins} and {other.bins}")
        return Histogram(
            self.bins,
            _frozen(self.counts + other.counts),
            self.below + other.below,
            self.above + other.above,
            self.total + other.total,
            min((x for x in (self.smallest, other.smallest) if x is not None), default=None),
            max((x for x in (self.largest, other.largest) if x is not None), default=None),
            self.nonfinite + other.nonfinite,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.to_json() == other.to_json()

    def bracket(self, q: float) -> Bracket | None:
        """The edges between which the q-quantile surely lies; None when nothing was seen.

        The q-quantile is the smallest value x such that a share q of all values is <= x.
        The bracket is the bin of that value, cut to [smallest, largest].
        """
        place = self._place(q)
        if place is None or self.smallest is None or self.largest is None:
            return None
        low, high = self._ends(place)
        return Bracket(max(low, self.smallest), min(high, self.largest))

    def quantile(self, q: float) -> float | None:
        """The middle of the bin that ``bracket(q)`` is cut from, moved into the bracket.

        Wrong by at most half a bin (on a log or ratio scale: by at most half a bin's factor), outside
        the edges by at most the bracket. None when nothing was seen or a value was not finite.
        """
        place, bracket = self._place(q), self.bracket(q)
        if place is None or bracket is None or self.nonfinite:
            return None
        return min(max(self.bins.middle(*self._ends(place)), bracket.low), bracket.high)

    def _place(self, q: float) -> int | None:
        """Bin of the q-quantile: 0 is below the edges, bins.size + 1 above them."""
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile must be in [0, 1], got {q}")
        if self.smallest is None:
            return None
        rank = max(1, math.ceil(q * self.count - 1e-9))
        return int(np.searchsorted(np.concatenate([[self.below], self.counts]).cumsum(), rank))

    def _ends(self, place: int) -> Bracket:
        assert self.smallest is not None
        assert self.largest is not None
        edges = self.bins.edges
        low = float(edges[place - 1]) if place > 0 else self.smallest
        return Bracket(low, float(edges[place]) if place <= self.bins.size else self.largest)

    def to_json(self) -> dict[str, Any]:
        """The record's form: counts without the empty bins at both ends; ``first`` is the first kept bin."""
        filled = np.flatnonzero(self.counts)
        first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        return {
            "bins": [self.bins.scale, self.bins.low, self.bins.high, self.bins.steps],
            "first": first,
            "counts": self.counts[first:last].tolist(),
            "below": self.below,
            "above": self.above,
            "total": self.total if math.isfinite(self.total) else None,
            "min": self.smallest,
            "max": self.largest,
            "nonfinite": self.nonfinite,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Histogram:
        """The exact inverse of ``to_json``."""
        bins = Bins(*stored["bins"])
        counts = np.zeros(bins.size, dtype=np.int64)
        counts[stored["first"] : stored["first"] + len(stored["counts"])] = stored["counts"]
        total = math.inf if stored["total"] is None else stored["total"]
        ends = (stored[name] for name in ("min", "max", "nonfinite"))
        return cls(bins, _frozen(counts), stored["below"], stored["above"], total, *ends)


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile that merges, because the whole histogram does; ``value`` is ``histogram.quantile(q)``."""

    histogram: Histogram
    q: float

    @property
    def value(self) -> float | None:
        return self.histogram.quantile(self.q)

    @property
    def nonfinite(self) -> int:
        return self.histogram.nonfinite

    def __add__(self, other: Quantile) -> Quantile:
        if self.q != other.q:
            raise ValueError(f"quantiles merge only at the same q, got {self.q} and {other.q}")
        return Quantile(self.histogram + other.histogram, self.q)


def _frozen(counts: Counts) -> Counts:
    counts.setflags(write=False)
    return counts
