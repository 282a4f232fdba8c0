"""The rubric: several graders with weights, asked about every answer of a group at once.

    value = sum_k weight_k * part_k / sum_k weight_k        (all parts graded)

Each grader's own value is kept in ``parts``. The state follows these rules, in this order:
    1. an answer that the engine aborted is ``not_gradable``: it says nothing about the policy;
    2. a truncated answer is wrong, every part 0, without asking (``truncated = "grade"`` asks);
    3. if any grader with a weight cannot grade, the whole answer is ungraded, with the first of
       grader_failed, timeout, not_gradable that occurs; it has no value, never a partial sum;
    4. otherwise value 1 is right, 0 wrong, anything between partial.
A grader of weight 0 only watches: its part is kept, its faults are counted, the state is not changed.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.errors import RunError, SettingError, nearest
from trimtab.rewards.asking import Account, Asker, RetryConfig
from trimtab.rewards.grader import Describing, Grader, Reading, SelfChecking, Unverifiable
from trimtab.types import (
    UNIFORM_TOLERANCE,
    Finish,
    Grade,
    GradeState,
    Group,
    Prompt,
    Rollout,
    ScoredGroup,
)

TRUNCATED_POLICIES = ("wrong", "grade")
_WORST_FIRST = (GradeState.GRADER_FAILED, GradeState.TIMEOUT, GradeState.NOT_GRADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderConfig:
    """One grader of the ``[reward]`` table.

    name: a built-in grader, or ``path.py:function`` for one of your own.
    weight: its share of the value, >= 0; 0 only watches.
    options: the grader's own settings; for a function those of ``AdapterOptions``.
    label: its name in the record, where two graders would have the same one.
    isolated: run it in a worker process that can be killed. None: true for functions of your own, false for
        built-in graders; ``code``, ``mathematics`` and ``format`` always run what can hang in processes.
    timeout: seconds for one answer, instead of ``reward.timeout``.
    """

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    isolated: bool | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """The ``[reward]`` table of a recipe.

    truncated: ``wrong`` grades a truncated answer wrong without asking; ``grade`` asks the graders.
    max_ungraded_share: the run stops when a larger share of a step's answers could not be graded.
    timeout: seconds that one grader may take for one answer, the time that it waits for its turn apart. An
        isolated grader is killed then; one inside the training process is only cut off where it awaits.
        ``code``, ``mathematics`` and ``format`` have limits of their own instead.
    concurrency: answers that one grader works on at once, where it awaits something, such as a network.
    workers: processes at most for isolated graders; None: one a processor core, 8 at most.
    worker_megabytes: memory that each of them may allocate.
    retry: which faults are worth asking again.
    """

    graders: tuple[GraderConfig, ...] = (GraderConfig(name="answer"),)
    truncated: Literal["wrong", "grade"] = "wrong"
    max_ungraded_share: float = 0.5
    timeout: float = 30.0
    concurrency: int = 32
    workers: int | None = None
    worker_megabytes: int = 4096
    retry: RetryConfig = field(default_factory=RetryConfig)

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"reward.workers must be >= 1, got {self.workers}")
        if self.worker_megabytes < 64:
            raise SettingError(
                f"reward.worker_megabytes must be at least 64 for Python itself, got {self.worker_megabytes}"
            )


class Rubric:
    """Asks its graders; turns their faults into states; stops a run whose grading is broken.

    graders: pairs (grader, weight); names must differ and at least one weight must be > 0.
    timeout, concurrency, retry: as in ``RewardConfig``; ``timeouts`` has limits of single graders by name.
    ``first_traceback`` is the whole traceback of the first fault so far, None while there was none.
    Raises SettingError on impossible settings.
    """

    def __init__(
        self,
        graders: Sequence[tuple[Grader, float]],
        *,
        truncated: Literal["wrong", "grade"] = "wrong",
        max_ungraded_share: float = 0.5,
        timeout: float = 30.0,
        timeouts: Mapping[str, float] | None = None,
        concurrency: int = 32,
        retry: RetryConfig = RetryConfig(),
    ) -> None:
        limits = {grader.name: timeout for grader, _ in graders} | dict(timeouts or {})
        _check(graders, truncated, max_ungraded_share, limits, concurrency)
        self.graders = tuple(graders)
        self.truncated = truncated
        self.max_ungraded_share = max_ungraded_share
        self._account = Account()
        self._askers = [
            Asker(grader, self._account, timeout=limits[grader.name], concurrency=concurrency, retry=retry)
            for grader, _ in graders
        ]

    @property
    def first_traceback(self) -> str | None:
        return self._account.first_traceback

    @property
    def seconds(self) -> float:
        """Seconds that grading has added to the run so far: its work in this thread, and in ``grade_all`` the
        wait after everything was sampled."""
        return self._account.seconds

    async def grade(self, group: Group) -> ScoredGroup:
        """The group with a grade for each rollout; all graders and answers run concurrently."""
        decided = [self._decided(rollout) for rollout in group.rollouts]
        asked = [r for r, grade in zip(group.rollouts, decided, strict=True) if grade is None]
        if len(self._askers) == 1:
            columns = [await self._askers[0].grades(group.prompt, asked)]
        else:
            columns = await asyncio.gather(*(asker.grades(group.prompt, asked) for asker in self._askers))
        found = iter(self._combined(row) for row in zip(*columns, strict=True))
        grades = tuple(next(found) if grade is None else grade for grade in decided)
        return ScoredGroup(group=group, grades=grades)

    async def grade_all(self, groups: AsyncIterator[Group]) -> list[ScoredGroup]:
        """The groups with their grades, in the order they arrived in.

        The grading of a group begins when it arrives and goes on while later ones are sampled. Where sampling
        fails, what is still being graded is cancelled.
        """
        grading: list[asyncio.Task[ScoredGroup]] = []
        try:
            async for group in groups:
                grading.append(asyncio.ensure_future(self.grade(group)))
            began, before = time.perf_counter(), self._account.seconds
            scored = [await task for task in grading]
            self._account.seconds = before + time.perf_counter() - began
            return scored
        finally:
            for task in grading:
                task.cancel()
            await asyncio.gather(*grading, return_exceptions=True)

    def check(self, scored: Sequence[ScoredGroup]) -> None:
        """Call once a step, with every group graded in it.

        Raises RunError with the first traceback when no answer, or too small a share, could be graded.
        """
        grades = [grade for group in scored for grade in group.grades]
        counts = {state: sum(grade.state is state for grade in grades) for state in _WORST_FIRST}
        ungraded = sum(counts.values())
        if not grades or (ungraded < len(grades) and ungraded <= self.max_ungraded_share * len(grades)):
            return
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        detail = next(
            (grade.detail for grade in grades if not grade.graded and grade.detail), "no reason given"
        )
        trace = f"\nthe first traceback:\n{self.first_traceback}" if self.first_traceback else ""
        raise RunError(
            f"{ungraded} of {len(grades)} answers of this step could not be graded ({told}), more than "
            f"reward.max_ungraded_share = {self.max_ungraded_share:g} allows; the first reason: {detail}; "
            f"mend the grader or the gold answers (ungraded answers are never counted as wrong){trace}"
        )

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """The prompts whose gold answers some weighted grader cannot verify against themselves."""
        found = [
            Unverifiable(bad.prompt_id, bad.answer, f"{grader.name}: {bad.reason}")
            for grader, weight in self.graders
            if weight > 0 and isinstance(grader, SelfChecking)
            for bad in grader.self_check(prompts)
        ]
        return sorted({bad.prompt_id: bad for bad in reversed(found)}.values())

    def describe(self) -> list[str]:
        """A line for each grader that has something to say before the run begins."""
        return [
            f"{grader.name}: {grader.describe()}"
            for grader, _ in self.graders
            if isinstance(grader, Describing)
        ]

    def read_answer(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The final answer in this rollout as the first grader that reads answers sees it, for votes.

        None when no grader reads answers, the rollout has none, or it is truncated and thereby wrong.
        """
        if rollout.truncated and self.truncated == "wrong":
            return None
        readers = (grader for grader, _ in self.graders if isinstance(grader, Reading))
        reader = next(readers, None)
        return None if reader is None else reader.read(prompt, rollout)

    def _decided(self, rollout: Rollout) -> Grade | None:
        """The grade of an answer that no grader is asked about; None where they are."""
        if rollout.finish is Finish.ABORT:
            return Grade(state=GradeState.NOT_GRADABLE, value=None, detail="the engine aborted this answer")
        if rollout.truncated and self.truncated == "wrong":
            nothing = {grader.name: 0.0 for grader, _ in self.graders}
            return Grade.of(0.0, parts=nothing, detail=f"truncated after {rollout.length} tokens")
        return None

    def _combined(self, grades: Sequence[Grade]) -> Grade:
        pairs = zip(self.graders, grades, strict=True)
        return combine([(grader.name, weight, grade) for (grader, weight), grade in pairs])


def combine(asked: Sequence[tuple[str, float, Grade]]) -> Grade:
    """One grade from (name, weight, grade) of every grader, by the rules of this file."""
    parts: dict[str, float] = {}
    for name, _, grade in asked:
        if grade.value is not None:
            parts[name] = grade.value
        parts.update({f"{name}.{part}": value for part, value in grade.parts.items()})
    ungraded = [grade for _, weight, grade in asked if weight > 0 and not grade.graded]
    for state in _WORST_FIRST:
        for grade in ungraded:
            if grade.state is state:
                return Grade(state=state, value=None, parts=parts, detail=grade.detail)
    weighted = [(weight, grade.value) for _, weight, grade in asked if weight > 0 and grade.value is not None]
    value = sum(weight * part for weight, part in weighted) / sum(weight for weight, _ in weighted)
    value = 1.0 if value >= 1.0 - UNIFORM_TOLERANCE else 0.0 if value <= UNIFORM_TOLERANCE else value
    said = [(name, grade.detail) for name, _, grade in asked if grade.detail]
    detail = said[0][1] if len(asked) == 1 and said else "; ".join(f"{name}: {text}" for name, text in said)
    return Grade.of(value, parts=parts, detail=detail)


def _check(
    graders: Sequence[tuple[Grader, float]],
    truncated: str,
    share: float,
    limits: Mapping[str, float],
    concurrency: int,
) -> None:
    names = [grader.name for grader, _ in graders]
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"two graders are named {name!r}; give one of them a label in reward.graders")
    for grader, weight in graders:
        if not 0.0 <= weight < float("inf"):
            raise SettingError(f"the weight of grader {grader.name!r} must be >= 0 and finite, got {weight}")
    if not any(weight > 0 for _, weight in graders):
        raise SettingError("reward.graders needs at least one grader with a weight > 0")
    if truncated not in TRUNCATED_POLICIES:
        raise SettingError(
            f"reward.truncated cannot be {truncated!r}{nearest(truncated, TRUNCATED_POLICIES)}"
        )
    if not 0.0 <= share <= 1.0:
        raise SettingError(f"reward.max_ungraded_share must be in [0, 1], got {share}")
    for name, limit in limits.items():
        if not limit > 0.0:
            raise SettingError(f"the timeout of grader {name!r} must be > 0 seconds, got {limit}")
    if concurrency < 1:
        raise SettingError(f"reward.concurrency must be >= 1, got {concurrency}")
