"""How long answers are, and which groups are kept: from a recorded run, or from a mean and a spread."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import SettingError
from trimtab.planning.figures import Origin

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Answers(NamedTuple):
    """Answers of G groups of n: ``lengths_GN`` tokens each, ``kept_G`` whether selection keeps the group."""

    lengths_GN: Ints
    kept_G: Bools


class Lengths(Protocol):
    """Where answers come from. ``mean``: tokens; ``keep_rate``: share of groups that selection keeps."""

    @property
    def origin(self) -> Origin: ...

    @property
    def how(self) -> str: ...

    @property
    def mean(self) -> float: ...

    @property
    def mean_square(self) -> float: ...

    @property
    def keep_rate(self) -> float: ...

    def draw(self, random: np.random.Generator, groups: int, answers: int) -> Answers: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Log-normal lengths, cut at a limit; a share of the spread belongs to the prompt and not to the answer.

    average, sd: tokens, before the limit cuts. limit: tokens at most. alike: correlation of the logarithms of
    two answers to one prompt, in [0, 1]. keep_rate: groups are kept independently of their lengths.
    """

    average: float
    sd: float
    limit: int
    keep_rate: float = 1.0
    alike: float = 0.5
    origin: Origin = Origin.ASSUMED
    how: str = "log-normal with the mean and the spread that were given"

    def __post_init__(self) -> None:
        if not (self.average >= 1.0 and self.sd >= 0.0 and self.limit >= 1):
            raise SettingError(
                "lengths need a mean >= 1, a spread >= 0 and a limit >= 1, got "
                f"{self.average:g}, {self.sd:g} and {self.limit}"
            )
        if not (0.0 < self.keep_rate <= 1.0 and 0.0 <= self.alike <= 1.0):
            raise SettingError(f"the keep rate must be in (0, 1], got {self.keep_rate:g}")

    @property
    def mean(self) -> float:
        return float(self._many().mean())

    @property
    def mean_square(self) -> float:
        return float((self._many().astype(np.float64) ** 2).mean())

    def draw(self, random: np.random.Generator, groups: int, answers: int) -> Answers:
        spread = math.log1p((self.sd / self.average) ** 2)
        middle = math.log(self.average) - spread / 2
        own = random.standard_normal((groups, answers)) * math.sqrt(spread * (1.0 - self.alike))
        common = random.standard_normal((groups, 1)) * math.sqrt(spread * self.alike)
        lengths = np.exp(middle + own + common).round().clip(1, self.limit).astype(np.int64)
        return Answers(lengths, random.random(groups) < self.keep_rate)

    def _many(self) -> Ints:
        return self.draw(np.random.default_rng(0), 64, 64).lengths_GN if self.sd else self._one()

    def _one(self) -> Ints:
        return np.array([min(max(1, round(self.average)), self.limit)])


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Groups of a recorded run, drawn whole and with replacement, so that lengths and verdicts go together.

    A group of another size is drawn from the same group's answers with replacement. ``limit`` cuts them.
    """

    groups: Sequence[Ints]
    kept: Bools
    how: str
    limit: int = 1 << 30
    origin: Origin = Origin.MEASURED

    @property
    def mean(self) -> float:
        return float(np.concatenate(self.groups).clip(1, self.limit).mean())

    @property
    def mean_square(self) -> float:
        return float((np.concatenate(self.groups).clip(1, self.limit).astype(np.float64) ** 2).mean())

    @property
    def keep_rate(self) -> float:
        return float(self.kept.mean())

    def draw(self, random: np.random.Generator, groups: int, answers: int) -> Answers:
        chosen_G = random.integers(0, len(self.groups), groups)
        lengths_GN = np.empty((groups, answers), dtype=np.int64)
        for row, group in enumerate(chosen_G):
            found = self.groups[group]
            if len(found) != answers:
                found = found[random.integers(0, len(found), answers)]
            lengths_GN[row] = found
        return Answers(lengths_GN.clip(1, self.limit), self.kept[chosen_G])
