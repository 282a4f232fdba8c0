"""From grades to rewards: the scale of right and wrong, and what length adds to it.

    reward_i = wrong + (right - wrong) * value_i + length_part(|y_i|)

Shaping comes after selection: groups are kept or dropped on the raw grades.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import SettingError
from trimtab.types import RewardedGroup, ScoredGroup


class Breakpoint(NamedTuple):
    """At this many response tokens the length part of the reward is ``penalty``."""

    length: int
    penalty: float


@dataclass(frozen=True, slots=True)
class RewardScale:
    """The reward of a right and of a wrong answer; partial ones lie between, on a line.

    DAPO's are +1 and -1 (arXiv 2503.14476, eq. 7). Under a division by the group's std the scale alone
    changes nothing; it matters beside a length penalty.
    """

    right: float = 1.0
    wrong: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.right) and math.isfinite(self.wrong) and self.right > self.wrong):
            raise SettingError(
                f"a right answer must earn more than a wrong one, got right = {self.right} and "
                f"wrong = {self.wrong}"
            )

    def __call__(self, values: ArrayLike) -> NDArray[np.float64]:
        """Grade values in [0, 1] (NaN where not graded) -> rewards, float64."""
        return self.wrong + (self.right - self.wrong) * np.asarray(values, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SoftOverlong:
    """Soft overlong punishment: a ramp over the last ``buffer`` tokens before ``maximum``.

        0                                   |y| <= maximum - buffer
        ((maximum - buffer) - |y|) / buffer     up to |y| = maximum
        -1                                  |y| >  maximum

    An answer cut off exactly at the maximum gets -1 from the middle branch.
    maximum: response tokens, an end token included; None means ``sampling.max_new_tokens``.
    Raises SettingError where the buffer is not in [1, maximum).
    Source: DAPO, arXiv 2503.14476, eq. 13 (maximum 20480, buffer 4096).
    """

    buffer: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise SettingError(
                f"the overlong buffer must be >= 1 token, got {self.buffer}; "
                "leave shaping out to have no penalty"
            )
        if self.maximum is not None:
            self._check(self.maximum)

    def penalties(self, lengths: ArrayLike, max_new_tokens: int) -> NDArray[np.float64]:
        """The length part of the reward for each of these response lengths, in [-1, 0], float64."""
        ramp = (self._start(max_new_tokens) - np.asarray(lengths, dtype=np.float64)) / self.buffer
        return np.clip(ramp, -1.0, 0.0) + 0.0

    def breakpoints(self, max_new_tokens: int) -> tuple[Breakpoint, ...]:
        """Where the penalty starts, is one half (rounded up to a whole token), and is full."""
        start = self._start(max_new_tokens)
        middle = start + (self.buffer + 1) // 2
        half = float(self.penalties(middle, max_new_tokens))
        return (Breakpoint(start, 0.0), Breakpoint(middle, half), Breakpoint(start + self.buffer, -1.0))

    def _start(self, max_new_tokens: int) -> int:
        maximum = max_new_tokens if self.maximum is None else self.maximum
        self._check(maximum)
        start = maximum - self.buffer
        if start >= max_new_tokens:
            raise SettingError(
                f"the overlong penalty starts after {start} tokens, but answers end at max_new_tokens = "
                f"{max_new_tokens}; lower shaping.maximum or leave shaping out"
            )
        return start

    def _check(self, maximum: int) -> None:
        if self.buffer >= maximum:
            raise SettingError(
                f"the overlong buffer ({self.buffer}) must be smaller than the maximum length ({maximum}), "
                f"or every answer is punished; take about a fifth of it, for example {max(1, maximum // 5)}"
            )


@dataclass(frozen=True, slots=True)
class HardOverlong:
    """A fixed penalty for every answer that reaches ``maximum`` response tokens.

        -penalty   where |y| >= maximum, else 0

    At the default maximum, ``sampling.max_new_tokens``, these are the truncated answers (and the
    few that end with exactly the last token allowed). penalty > 0, in units of reward.
    """

    penalty: float = 1.0
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty > 0.0):
            raise SettingError(
                f"the overlong penalty is subtracted and must be > 0, got {self.penalty}; "
                "leave shaping out to have none"
            )
        if self.maximum is not None and self.maximum < 1:
            raise SettingError(f"the overlong maximum must be >= 1 token, got {self.maximum}")

    def penalties(self, lengths: ArrayLike, max_new_tokens: int) -> NDArray[np.float64]:
        """The length part of the reward for each of these response lengths: 0 or -penalty, float64."""
        return np.where(np.asarray(lengths) >= self._maximum(max_new_tokens), -self.penalty, 0.0)

    def breakpoints(self, max_new_tokens: int) -> tuple[Breakpoint, ...]:
        """The last length without penalty, the first with it, and the longest answer possible."""
        maximum = self._maximum(max_new_tokens)
        return (
            Breakpoint(maximum - 1, 0.0),
            Breakpoint(maximum, -self.penalty),
            Breakpoint(max_new_tokens, -self.penalty),
        )

    def _maximum(self, max_new_tokens: int) -> int:
        if self.maximum is None:
            return max_new_tokens
        if self.maximum > max_new_tokens:
            raise SettingError(
                f"the overlong penalty starts at {self.maximum} tokens, but answers end at max_new_tokens = "
                f"{max_new_tokens}; lower shaping.maximum or leave shaping out"
            )
        return self.maximum


LengthShaping = SoftOverlong | HardOverlong
"""What length adds to the reward; None in an ``Algorithm`` adds nothing."""


def reward_group(
    scored: ScoredGroup, scale: RewardScale, shaping: LengthShaping | None, max_new_tokens: int
) -> RewardedGroup:
    """One scored group with its rewards [G] float64: NaN where not graded, shaping included."""
    values = np.array([np.nan if g.value is None else g.value for g in scored.grades], dtype=np.float64)
    lengths = np.array([rollout.length for rollout in scored.group.rollouts], dtype=np.int64)
    added = np.zeros(len(values)) if shaping is None else shaping.penalties(lengths, max_new_tokens)
    added = np.where(np.isnan(values), 0.0, added)
    return RewardedGroup(scored=scored, rewards=scale(values) + added, shaping=added)


def reward_groups(
    scored: Sequence[ScoredGroup], scale: RewardScale, shaping: LengthShaping | None, max_new_tokens: int
) -> list[RewardedGroup]:
    """``reward_group`` for each group of a step, in order."""
    return [reward_group(group, scale, shaping, max_new_tokens) for group in scored]
