"""The seam for graders: one coroutine wide. A rubric (rubric.py) asks several of them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from trimtab.types import Grade, Prompt, Rollout


@runtime_checkable
class Grader(Protocol):
    """Grades one answer. A fault of the grader is raised, never returned as 0."""

    @property
    def name(self) -> str: ...

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade: ...


@runtime_checkable
class SelfLimiting(Protocol):
    """A grader that bounds the time of each answer itself and lets answers wait in a queue of its own.

    The rubric lays no limit over it: that one would also count the waiting, and time out answers for
    the slowness of others.
    """

    limits_itself: ClassVar[Literal[True]]


@runtime_checkable
class GroupGrading(Protocol):
    """A grader that can be asked about answers to one prompt in one go, and must be where ``sees_group``."""

    sees_group: bool

    async def grade_group(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Grade | Exception]:
        """For each answer its grade, or the fault it was met with. What is raised is the fault of all."""
        ...


class Unverifiable(NamedTuple):
    """A prompt whose gold answer does not grade as right, and why. No rollout of it can be graded."""

    prompt_id: str
    answer: str
    reason: str


@runtime_checkable
class SelfChecking(Protocol):
    """A grader that can grade each gold answer against itself before the run."""

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]: ...


@runtime_checkable
class Reading(Protocol):
    """A grader that reads a final answer out of a rollout, so that answers can be voted on."""

    def read(self, prompt: Prompt, rollout: Rollout) -> str | None: ...


@runtime_checkable
class Describing(Protocol):
    """A grader with something to say before the run begins, such as what model-written programs may do."""

    def describe(self) -> str: ...
