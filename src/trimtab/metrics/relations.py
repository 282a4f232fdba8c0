"""Metrics of two columns, or of squares: correlation, difference, effective share, explained variance."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.metrics.values import (
    OVERFLOW_IS_NAMED,
    Mean,
    Numbers,
    Std,
    centred,
    count_nonfinite,
    dot,
    floats,
)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r of two columns, in [-1, 1]; None below two pairs or where a column is constant.

        r = sum (x - mean_x)(y - mean_y) / sqrt(sum (x - mean_x)^2 * sum (y - mean_y)^2)

    The three sums of products merge like those of ``Std``.
    """

    count: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, x: Numbers, y: Numbers) -> Correlation:
        xs, ys = floats(x), floats(y)
        if xs.size != ys.size:
            raise ValueError(f"a correlation needs pairs, got {xs.size} and {ys.size} values")
        bad = count_nonfinite(xs, ys)
        if bad or not xs.size:
            return cls(nonfinite=bad)
        mean_x, dx = centred(xs)
        mean_y, dy = centred(ys)
        return cls(xs.size, mean_x, mean_y, dot(dx, dx), dot(dy, dy), dot(dx, dy))

    @property
    def value(self) -> float | None:
        scale = math.sqrt(self.xx) * math.sqrt(self.yy)
        if self.count < 2 or self.nonfinite or scale == 0.0:
            return None
        return max(-1.0, min(1.0, self.xy / scale))

    def __add__(self, other: Correlation) -> Correlation:
        count, bad = self.count + other.count, self.nonfinite + other.nonfinite
        if not self.count or not other.count:
            seen = self if self.count else other
            return Correlation(seen.count, seen.mean_x, seen.mean_y, seen.xx, seen.yy, seen.xy, bad)
        gap_x, gap_y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        share, cross = other.count / count, self.count * other.count / count
        return Correlation(
            count,
            self.mean_x + gap_x * share,
            self.mean_y + gap_y * share,
            self.xx + other.xx + gap_x * gap_x * cross,
            self.yy + other.yy + gap_y * gap_y * cross,
            self.xy + other.xy + gap_x * gap_y * cross,
            bad,
        )


@dataclass(frozen=True, slots=True)
class EffectiveShare:
    """Effective sample size of importance weights as a share of their number, in (0, 1].

    (sum w)^2 / (n * sum w^2)      1 when all weights are alike, 1/n when one outweighs the rest
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    nonfinite: int = 0

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, weights: Numbers) -> EffectiveShare:
        numbers = floats(weights)
        squares = numbers * numbers
        bad = count_nonfinite(numbers, squares)
        return cls(nonfinite=bad) if bad else cls(numbers.size, float(numbers.sum()), float(squares.sum()))

    @property
    def value(self) -> float | None:
        if not self.count or not self.squares or self.nonfinite:
            return None
        return min(1.0, self.total * self.total / (self.count * self.squares))

    def __add__(self, other: EffectiveShare) -> EffectiveShare:
        return EffectiveShare(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            self.nonfinite + other.nonfinite,
        )


@dataclass(frozen=True, slots=True)
class ExplainedVariance:
    """Share of a target's variance that a prediction explains: 1 - Var(target - prediction) / Var(target).

    1 is perfect, 0 is no better than a constant, below 0 is worse; None where the target is constant.
    """

    residual: Std = Std()
    target: Std = Std()

    @classmethod
    @OVERFLOW_IS_NAMED
    def of(cls, prediction: Numbers, target: Numbers) -> ExplainedVariance:
        predicted, wanted = floats(prediction), floats(target)
        return cls(Std.of(wanted - predicted), Std.of(wanted))

    @property
    def nonfinite(self) -> int:
        return max(self.residual.nonfinite, self.target.nonfinite)

    @property
    def value(self) -> float | None:
        left, whole = self.residual.variance, self.target.variance
        return None if left is None or not whole else 1.0 - left / whole

    def __add__(self, other: ExplainedVariance) -> ExplainedVariance:
        return ExplainedVariance(self.residual + other.residual, self.target + other.target)


@dataclass(frozen=True, slots=True)
class Difference:
    """One mean minus another, each over its own entries; None where either saw nothing."""

    left: Mean = Mean()
    right: Mean = Mean()

    @property
    def nonfinite(self) -> int:
        return self.left.nonfinite + self.right.nonfinite

    @property
    def value(self) -> float | None:
        left, right = self.left.value, self.right.value
        return None if left is None or right is None else left - right

    def __add__(self, other: Difference) -> Difference:
        return Difference(self.left + other.left, self.right + other.right)
