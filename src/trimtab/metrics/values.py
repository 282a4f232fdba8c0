"""Numbers that merge correctly: each keeps what is needed to join it with its like, never only a mean.

    a + b   is the metric of both parts together, whatever the parts and the order

Counts, minima and maxima merge exactly; sums of floats up to rounding in float64. ``value`` is None
where nothing was observed. A NaN or an infinity is never averaged away and never hidden: it is
counted in ``nonfinite``, the value becomes None, and the record names the number and the reason.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = float | Sequence[float] | Sequence[bool] | NDArray[np.generic]

OVERFLOW_IS_NAMED = np.errstate(over="ignore", invalid="ignore")
"""No warning on stderr for what ``nonfinite`` or ``read`` says with its reason."""


@runtime_checkable
class Metric(Protocol):
    """A frozen value that merges by ``+`` with its own kind."""

    @property
    def value(self) -> float | None: ...

    @property
    def nonfinite(self) -> int: ...

    def __add__(self, other: Self, /) -> Self: ...


def floats(values: Numbers) -> Array:
    """Any numbers as a flat float64 array."""
    return np.asarray(values, dtype=np.float64).reshape(-1)


def count_nonfinite(*columns: Array) -> int:
    """Entries that are NaN or infinite in any of the columns. One sum decides in the usual case."""
    if all(math.isfinite(float(column.sum())) for column in columns):
        return 0
    finite = np.logical_and.reduce([np.isfinite(column) for column in columns])
    return int((~finite).sum())


@dataclass(frozen=True, slots=True)
class Mean:
    """total / weight: a mean, a share of a mask, or a rate of two sums.

    Example: Mean(3.0, 4.0) + Mean(1.0, 12.0) == Mean(4.0, 16.0), value 0.25 and not (0.75 + 0.083) / 2.
    """

    total: float = 0.0
    weight: float = 0.0
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers, weights: Numbers | None = None) -> Mean:
        """The (weighted) mean of these values; a mask may be the values (its share) or the weights.

        Where the weight is 0 the value does not matter, whatever it is.
        """
        numbers = floats(values)
        if weights is None:
            total, weight, bad = float(numbers.sum()), float(numbers.size), count_nonfinite(numbers)
        else:
            scale = floats(weights)
            products = np.where(scale == 0.0, 0.0, numbers) * scale
            total, weight, bad = float(products.sum()), float(scale.sum()), count_nonfinite(products)
        return cls(nonfinite=bad) if bad else cls(total, weight)

    @property
    def value(self) -> float | None:
        return self.total / self.weight if self.weight and not self.nonfinite else None

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.weight + other.weight, self.nonfinite + other.nonfinite)


@dataclass(frozen=True, slots=True)
class Sum:
    """A total: counts, tokens, seconds. The sum of no event is 0, and that is an observation."""

    total: float = 0.0
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers) -> Sum:
        numbers = floats(values)
        bad = count_nonfinite(numbers)
        return cls(0.0 if bad else float(numbers.sum()), bad)

    @property
    def value(self) -> float | None:
        return None if self.nonfinite else self.total

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.total + other.total, self.nonfinite + other.nonfinite)


@dataclass(frozen=True, slots=True)
class Max:
    """The largest value seen; None before the first."""

    largest: float | None = None
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers) -> Max:
        numbers = floats(values)
        bad = count_nonfinite(numbers)
        return cls(float(numbers.max()) if numbers.size and not bad else None, bad)

    @property
    def value(self) -> float | None:
        return None if self.nonfinite else self.largest

    def __add__(self, other: Max) -> Max:
        seen = [x for x in (self.largest, other.largest) if x is not None]
        return Max(max(seen, default=None), self.nonfinite + other.nonfinite)


@dataclass(frozen=True, slots=True)
class Min:
    """The smallest value seen; None before the first."""

    smallest: float | None = None
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers) -> Min:
        numbers = floats(values)
        bad = count_nonfinite(numbers)
        return cls(float(numbers.min()) if numbers.size and not bad else None, bad)

    @property
    def value(self) -> float | None:
        return None if self.nonfinite else self.smallest

    def __add__(self, other: Min) -> Min:
        seen = [x for x in (self.smallest, other.smallest) if x is not None]
        return Min(min(seen, default=None), self.nonfinite + other.nonfinite)


@dataclass(frozen=True, slots=True)
class Std:
    """Population standard deviation (ddof 0); None below two values.

    Kept as count, mean and m2 = sum (x - mean)^2, which merge without cancellation:
        m2 = m2_a + m2_b + (mean_b - mean_a)^2 * n_a * n_b / n
    Values that are all equal have m2 = 0 exactly, however their mean rounds.
    Source: Chan, Golub, LeVeque (1979), eq. 2.1.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, values: Numbers) -> Std:
        numbers = floats(values)
        bad = count_nonfinite(numbers)
        if bad or not numbers.size:
            return cls(nonfinite=bad)
        mean, deviations = centred(numbers)
        return cls(numbers.size, mean, dot(deviations, deviations))

    @property
    def value(self) -> float | None:
        return None if self.count < 2 or self.nonfinite else math.sqrt(self.m2 / self.count)

    @property
    def variance(self) -> float | None:
        return None if self.count < 2 or self.nonfinite else self.m2 / self.count

    def __add__(self, other: Std) -> Std:
        count, bad = self.count + other.count, self.nonfinite + other.nonfinite
        if not self.count or not other.count:
            seen = self if self.count else other
            return Std(seen.count, seen.mean, seen.m2, bad)
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        return Std(count, mean, self.m2 + other.m2 + gap * gap * (self.count * other.count / count), bad)


def dot(x: Array, y: Array) -> float:
    """Sum of products, pairwise and not by BLAS, whose threads change the last bits and cost time here."""
    return float((x * y).sum())


def centred(numbers: Array) -> tuple[float, Array]:
    """Mean and deviations of a non-empty array; exactly (x, zeros) where all entries are x."""
    first = float(numbers[0])
    shifted = numbers - first
    mean = float(shifted.mean())
    return first + mean, shifted - mean
