"""Win rate: an answer's reward is its mean probability of winning against the other answers of its group.

    value_i = mean over j != i of P(i beats j)
    P(i beats j) = 1 / (1 + exp(-(score_i - score_j) / scale))       by a reward model (Bradley-Terry)
    P(i beats j) = (v_ij + 1 - v_ji) / 2                             by a judge, asked in both orders

The values of a group average to 0.5 whatever the policy has learned: they rank answers, they measure no
progress. Source: R. A. Bradley, M. E. Terry, Rank analysis of incomplete block designs, Biometrika 39, 1952.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError, nearest
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.judge import Judge
from trimtab.rewards.judge.endpoint import EndpointTimeoutError
from trimtab.rewards.model import RewardModel, read_card, sigmoid
from trimtab.rewards.shown import shown
from trimtab.types import Grade, GradeState, Prompt, Rollout

COMPARERS = ("reward-model", "judge")
KNOWN_SHARE = 0.5
"""Of an answer's comparisons, the share that must have a result for it to be graded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """Grades the answers of a group against one another.

    by: who compares, ``reward-model`` or ``judge``. options: those of that grader, as a table.
    opponents: a judge compares each answer with this many neighbours on either side, around the group in a
        circle, instead of all others: 2 * G * opponents questions a group in place of G * (G - 1).

    Equal answers draw without being asked. An answer is ungraded when more than half of its comparisons
    failed; those that it spoils for others do not count for them. One answer alone cannot be compared: a
    recipe that samples one is refused, and where only one of a group has ended it is not gradable.
    """

    limits_itself: ClassVar[Literal[True]] = True
    sees_group: ClassVar[Literal[True]] = True
    smallest_group: ClassVar[int] = 2

    by: Literal["reward-model", "judge"] = "reward-model"
    options: dict[str, Any] = field(default_factory=dict)
    opponents: int | None = None
    name: str = "win-rate"
    _comparer: RewardModel | Judge = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from trimtab.rewards.build import build_grader  # late, because it builds this grader too
        from trimtab.rewards.rubric import GraderConfig

        if self.by not in COMPARERS:
            raise SettingError(f"grader {self.name!r}: by cannot be {self.by!r}{nearest(self.by, COMPARERS)}")
        if self.opponents is not None and (self.opponents < 1 or self.by != "judge"):
            raise SettingError(f'grader {self.name!r}: opponents must be >= 1 and belongs to by = "judge"')
        comparer = build_grader(GraderConfig(name=self.by, options=self.options, label=self.name))
        object.__setattr__(self, "_comparer", comparer)

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        raise SettingError(
            f"grader {self.name!r} compares the answers of a group and cannot grade {rollout.key} alone"
        )

    async def grade_group(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Grade | Exception]:
        """A grade or a fault for each rollout, in order; a single one is not gradable."""
        if len(rollouts) < self.smallest_group:
            detail = "no other finished answer of the group to compare with"
            return [Grade(state=GradeState.NOT_GRADABLE, value=None, detail=detail)] * len(rollouts)
        if isinstance(self._comparer, RewardModel):
            return await _by_scores(self._comparer, prompt, rollouts)
        return await _by_verdicts(self._comparer, prompt, rollouts, self.opponents)

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """What the comparing grader finds before the run."""
        return self._comparer.self_check(prompts)


async def _by_scores(
    model: RewardModel, prompt: Prompt, rollouts: Sequence[Rollout]
) -> list[Grade | Exception]:
    found = await model.scores(prompt, rollouts)
    scale = model.scale or read_card(model.path).get("scale", 1.0)
    scores = {i: score for i, one in enumerate(found) if (score := _score_of(one)) is not None}
    chances: Chances = {
        (i, j): _by_difference(one - other, scale)
        for i, one in scores.items()
        for j, other in scores.items()
        if i != j
    }
    faults = {i: fault for i, fault in enumerate(found) if isinstance(fault, Grade | Exception)}
    count = range(len(rollouts))
    return [_graded(i, [j for j in count if j != i], chances, faults.get(i)) for i in count]


def _score_of(found: float | Grade | Exception) -> float | None:
    """The score; that of an answer which is wrong without one loses to any other."""
    if isinstance(found, Grade):
        return -math.inf if found.value == 0.0 else None
    return None if isinstance(found, Exception) else found


def _by_difference(difference: float, scale: float) -> float:
    return 0.5 if math.isnan(difference) else sigmoid(difference / scale)  # two empty answers draw


async def _by_verdicts(
    judge: Judge, prompt: Prompt, rollouts: Sequence[Rollout], opponents: int | None
) -> list[Grade | Exception]:
    answers = [shown(prompt, rollout, judge.reads) for rollout in rollouts]
    pairs = met(len(rollouts), opponents)
    asked = await asyncio.gather(
        *(_chance(judge, prompt, answers[i], answers[j]) for i, j in pairs), return_exceptions=True
    )
    chances: Chances = {}
    faults: dict[int, BaseException] = {}
    for (i, j), chance in zip(pairs, asked, strict=True):
        if isinstance(chance, BaseException):
            faults.setdefault(i, chance)
            faults.setdefault(j, chance)
        else:
            chances[i, j], chances[j, i] = chance, 1.0 - chance
    others = [[b if a == i else a for a, b in pairs if i in (a, b)] for i in range(len(rollouts))]
    return [_graded(i, others[i], chances, faults.get(i)) for i in range(len(rollouts))]


def met(count: int, opponents: int | None) -> list[tuple[int, int]]:
    """Which of the answers 0 ... count - 1 meet: all, or neighbours around a circle; each two once."""
    reach = count // 2 if opponents is None else min(opponents, count // 2)
    found = {(i, (i + step) % count) for i in range(count) for step in range(1, reach + 1)}
    return sorted({(min(i, j), max(i, j)) for i, j in found})


async def _chance(judge: Judge, prompt: Prompt, one: str, other: str) -> float:
    """That ``one`` is better: the mean of both orders, so that a judge who likes the first gains nothing."""
    if one == other:
        return 0.5
    if not one.strip() or not other.strip():
        return float(bool(one.strip()))
    there, back = await asyncio.gather(judge.better(prompt, one, other), judge.better(prompt, other, one))
    return (there.value + 1.0 - back.value) / 2.0


Chances = dict[tuple[int, int], float]


def _graded(
    i: int, others: list[int], chances: Chances, fault: Grade | BaseException | None
) -> Grade | Exception:
    """The mean chance against those with whom the comparison succeeded, where they are enough."""
    if isinstance(fault, BaseException) and not isinstance(fault, Exception):
        raise fault
    known = [chances[i, j] for j in others if (i, j) in chances]
    if known and len(known) >= KNOWN_SHARE * len(others):
        told = "" if len(known) == len(others) else f"; {len(others) - len(known)} comparisons failed"
        return Grade.of(sum(known) / len(known), detail=f"compared with {len(known)} answers{told}")
    if isinstance(fault, EndpointTimeoutError):
        return Grade(state=GradeState.TIMEOUT, value=None, detail=str(fault))
    if fault is not None:
        return fault
    detail = f"{len(others) - len(known)} of the {len(others)} other answers have no score to compare with"
    return Grade(state=GradeState.NOT_GRADABLE, value=None, detail=detail)
