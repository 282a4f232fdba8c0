"""Dynamic sampling: which groups a step trains on, decided on raw grades of whole groups.

A group whose answers are all alike has the advantage 0 everywhere: its policy gradient is 0. Selection
drops it, says why, and bounds how many prompts a step may draw in its place. It sees grades only:
a length penalty would make an all-wrong group look like one that can teach.

    P(no signal | pass rate p) = p^G + (1 - p)^G

Source: DAPO, arXiv 2503.14476, section 3.2, eq. 11 (keep 0 < right answers < G; no bound on the draws there).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import SettingError, nearest
from trimtab.types import UNIFORM_TOLERANCE, Group, ScoredGroup


class Reason(StrEnum):
    """Why a group is kept or dropped; the words of the record. ``verdict`` gives all but the last three."""

    KEPT = "kept"
    UNGRADED = "ungraded"
    TOO_FEW_GRADED = "too-few-graded"
    ALL_RIGHT = "all-right"
    ALL_WRONG = "all-wrong"
    UNIFORM_PARTIAL = "uniform-partial"
    BELOW_BAND = "below-band"
    ABOVE_BAND = "above-band"
    STALE = "stale"
    SURPLUS = "surplus"
    UNSELECTED = "unselected"


class Verdict(NamedTuple):
    """Keep the whole group or drop the whole group, and the reason."""

    keep: bool
    reason: Reason


def outcome(scored: ScoredGroup) -> Reason:
    """What a group's raw grades say, before any band: one of the uniform reasons, or ``KEPT``.

    Alike means max - min <= UNIFORM_TOLERANCE in float64, never a computed standard deviation.
    """
    return _outcome(scored.values)


def _outcome(values: NDArray[np.float64]) -> Reason:
    if len(values) == 0:
        return Reason.UNGRADED
    if len(values) < 2:
        return Reason.TOO_FEW_GRADED
    if values.max() - values.min() > UNIFORM_TOLERANCE:
        return Reason.KEPT
    if values.min() >= 1.0 - UNIFORM_TOLERANCE:
        return Reason.ALL_RIGHT
    return Reason.ALL_WRONG if values.max() <= UNIFORM_TOLERANCE else Reason.UNIFORM_PARTIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Keep the groups that can teach; draw more prompts for the dropped ones, within a bound.

    low, high: the kept band of the pass rate, in [0, 1], both ends included. The default (0, 1)
        means: every group that is not uniform. A uniform group is dropped whatever the band.
    max_draws_factor: prompts drawn in one step, at most, as a multiple of the prompts a step.
        ``inf`` means: until every training prompt was drawn once in this step.
    max_draws: the same bound as a plain number; counts instead of the factor where given.
    carry: kept groups beyond what the step needs wait for the next step; False drops them.
    max_staleness: a carried group is used while its oldest token is at most this many published
        policy versions old.
    max_empty_steps: steps in a row that may end without a single kept group; then the run stops.
    part: the grader whose own value decides, where several are summed (``answer``: a group in which
        nothing is right is dropped although its format differs); None takes the weighted sum.

    Raises SettingError on an empty or impossible band or bound.
    """

    low: float = 0.0
    high: float = 1.0
    max_draws_factor: float = 4.0
    max_draws: int | None = None
    carry: bool = True
    max_staleness: int = 1
    max_empty_steps: int = 3
    part: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise SettingError(
                f"selection keeps pass rates from low to high with 0 <= low < high <= 1, "
                f"got low = {self.low}, high = {self.high}; the defaults 0 and 1 keep every mixed group"
            )
        if not self.max_draws_factor >= 1.0:
            raise SettingError(
                "selection.max_draws_factor must be >= 1 (1 draws no replacement), "
                f"got {self.max_draws_factor}"
            )
        for name, least in (("max_draws", 1), ("max_staleness", 0), ("max_empty_steps", 1)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise SettingError(f"selection.{name} must be >= {least}, got {number}")

    def verdict(self, scored: ScoredGroup) -> Verdict:
        """Keep or drop this group as a whole, from its raw grades alone."""
        values = scored.values if self.part is None else self._part_values(scored, self.part)
        reason = _outcome(values)
        if reason is not Reason.KEPT:
            return Verdict(False, reason)
        rate = float(values.mean())
        if rate < self.low - UNIFORM_TOLERANCE:
            return Verdict(False, Reason.BELOW_BAND)
        if rate > self.high + UNIFORM_TOLERANCE:
            return Verdict(False, Reason.ABOVE_BAND)
        return Verdict(True, Reason.KEPT)

    def draw_limit(self, prompts: int, pool: int) -> int:
        """Prompts that a step may draw in all, so that no step can go on for ever.

        prompts: groups the step wants; pool: number of training prompts. At least ``prompts``.
        """
        if self.max_draws is not None:
            return max(prompts, self.max_draws)
        if math.isinf(self.max_draws_factor):
            return max(prompts, pool)
        return math.ceil(prompts * self.max_draws_factor)

    def usable(self, group: Group, version: int) -> bool:
        """Whether a carried group is still fresh enough to be trained on by policy ``version``."""
        oldest = min((rollout.version for rollout in group.rollouts), default=version)
        return version - oldest <= self.max_staleness

    @staticmethod
    def _part_values(scored: ScoredGroup, part: str) -> NDArray[np.float64]:
        graded = [grade for grade in scored.grades if grade.graded]
        for grade in graded:
            if part not in grade.parts:
                raise SettingError(f"selection.part: no grader is named {part!r}{nearest(part, grade.parts)}")
        return np.array([grade.parts[part] for grade in graded], dtype=np.float64)
