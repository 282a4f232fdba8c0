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
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.errors import RunError, SettingError, nearest
from trimtab.rewards.grader import Grader, Reading, SelfChecking, SelfLimiting, Unverifiable
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
    options: the grader's own settings.
    label: its name in the record, where two graders would have the same one.
    """

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """The ``[reward]`` table of a recipe.

    truncated: ``wrong`` grades a truncated answer wrong without asking; ``grade`` asks the graders.
    max_ungraded_share: the run stops when a larger share of a step's answers could not be graded.
    timeout: seconds that one grader may take for one answer; ``code`` and ``mathematics`` have limits of
        their own instead, which do not count the time an answer waits for its turn.
    """

    graders: tuple[GraderConfig, ...] = (GraderConfig(name="answer"),)
    truncated: Literal["wrong", "grade"] = "wrong"
    max_ungraded_share: float = 0.5
    timeout: float = 30.0


class Rubric:
    """Asks its graders; turns their faults into states; stops a run whose grading is broken.

    graders: pairs (grader, weight); names must differ and at least one weight must be > 0.
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
    ) -> None:
        _check(graders, truncated, max_ungraded_share, timeout)
        self.graders = tuple(graders)
        self.truncated = truncated
        self.max_ungraded_share = max_ungraded_share
        self.timeout = timeout
        self.first_traceback: str | None = None

    async def grade(self, group: Group) -> ScoredGroup:
        """The group with a grade for each rollout; all graders and answers run concurrently."""
        grades = await asyncio.gather(*(self._grade_one(group.prompt, rollout) for rollout in group.rollouts))
        return ScoredGroup(group=group, grades=tuple(grades))

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

    def read_answer(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The final answer in this rollout as the first grader that reads answers sees it, for votes.

        None when no grader reads answers, the rollout has none, or it is truncated and thereby wrong.
        """
        if rollout.truncated and self.truncated == "wrong":
            return None
        readers = (grader for grader, _ in self.graders if isinstance(grader, Reading))
        reader = next(readers, None)
        return None if reader is None else reader.read(prompt, rollout)

    async def _grade_one(self, prompt: Prompt, rollout: Rollout) -> Grade:
        if rollout.finish is Finish.ABORT:
            return Grade(state=GradeState.NOT_GRADABLE, value=None, detail="the engine aborted this answer")
        if rollout.truncated and self.truncated == "wrong":
            nothing = {grader.name: 0.0 for grader, _ in self.graders}
            return Grade.of(0.0, parts=nothing, detail=f"truncated after {rollout.length} tokens")
        if len(self.graders) == 1:
            grades = [await self._ask(self.graders[0][0], prompt, rollout)]
        else:
            grades = await asyncio.gather(*(self._ask(grader, prompt, rollout) for grader, _ in self.graders))
        return combine(
            [
                (grader.name, weight, grade)
                for (grader, weight), grade in zip(self.graders, grades, strict=True)
            ]
        )

    async def _ask(self, grader: Grader, prompt: Prompt, rollout: Rollout) -> Grade:
        try:
            async with asyncio.timeout(None if isinstance(grader, SelfLimiting) else self.timeout):
                grade = await grader(prompt, rollout)
            if not isinstance(grade, Grade):
                raise TypeError(f"grader {grader.name!r} returned {grade!r}, not a Grade")
            return grade
        except TimeoutError as fault:
            self._remember(grader, rollout, fault)
            detail = f"{grader.name}: no grade of {rollout.key} within {self.timeout:g} s"
            return Grade(state=GradeState.TIMEOUT, value=None, detail=detail)
        except Exception as fault:
            self._remember(grader, rollout, fault)
            last = traceback.format_exception_only(fault)[-1].strip()
            return Grade(state=GradeState.GRADER_FAILED, value=None, detail=f"{grader.name}: {last}")

    def _remember(self, grader: Grader, rollout: Rollout, fault: Exception) -> None:
        if self.first_traceback is None:
            trace = "".join(traceback.format_exception(fault))
            self.first_traceback = f"grader {grader.name!r}, rollout {rollout.key}:\n{trace}"


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


def _check(graders: Sequence[tuple[Grader, float]], truncated: str, share: float, timeout: float) -> None:
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
    if not timeout > 0.0:
        raise SettingError(f"reward.timeout must be > 0 seconds, got {timeout}")
