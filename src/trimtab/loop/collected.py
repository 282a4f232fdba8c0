"""What a step asks collection for, and what collection brings."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.data.selection import Reason, Verdict
from trimtab.rollout.engine import Sampling
from trimtab.types import ScoredGroup


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a step asks for: ``groups`` groups of ``rollouts`` answers each, from seeds of ``seed``.

    ahead: versions that the policy may have moved on, at most, when the step is trained; 0 where nothing is
    trained between collection and training.
    """

    groups: int
    rollouts: int
    sampling: Sampling
    seed: int
    ahead: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One group with its verdict. ``carried_in``: an earlier step sampled it."""

    scored: ScoredGroup
    verdict: Verdict
    carried_in: bool = False


@dataclass(slots=True, eq=False)
class Collected:
    """What a step's collection brought. ``fresh`` holds every group sampled now, before selection.

    ``kept`` are trained in this step, carried ones first; ``surplus`` waits for the next step;
    ``judged`` holds every group whose fate this step decided, with the reason; a surplus group's fate is
    decided by the step that trains or drops it. ``fresh_kept`` counts fresh groups that can teach.
    Grading overlaps sampling: ``grade_seconds`` is what it added, the work in this thread and the wait after
    the last answer was sampled. ``cursor`` and ``keep_rate`` are the loop's after it, so that its effect on
    the loop can be had again (``LoopState.take_over``). ``waited`` and ``hidden`` are seconds: before it was
    allowed to begin, and of its own during which training did not wait; both 0 where steps take turns.
    """

    fresh: list[ScoredGroup] = field(default_factory=list)
    kept: list[ScoredGroup] = field(default_factory=list)
    surplus: list[ScoredGroup] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    fresh_kept: int = 0
    draws: int = 0
    rounds: int = 0
    sample_seconds: float = 0.0
    grade_seconds: float = 0.0
    cursor: int = 0
    keep_rate: float = 1.0
    waited: float = 0.0
    hidden: float = 0.0

    def count(self, reason: Reason) -> int:
        return sum(judged.verdict.reason is reason for judged in self.judged)
