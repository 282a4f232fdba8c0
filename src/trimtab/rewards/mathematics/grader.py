"""The mathematics grader: finds the answer, reads it and the gold, compares the two."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.mathematics import symbolic
from trimtab.rewards.mathematics.judging import GoldFault, canonical, gold_fault, judge, unboxed
from trimtab.rewards.mathematics.placement import BOX, MARKERS, closing_of, find_answer
from trimtab.rewards.workers import WorkerFaultError, WorkerTimeoutError
from trimtab.types import Grade, GradeState, Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class MathematicsMatch:
    """Grades right or wrong: is the answer in the response equivalent to ``prompt.answer``?

    markers: where an answer may stand; placement.py has the rules. ``\\\\boxed`` is the last opened box,
        others are phrases (``Answer:``), signs (``####``) or tags (``<answer>``).
    tolerance: real numbers agree when |a - gold| <= tolerance * max(1, |gold|). 0 means exactly: 0.3333 is
        not 1/3, 1.5708 is not pi/2.
    timeout: seconds that the symbolic checker may take for one answer.

    What counts as equivalent is written in comparison.py. The value counts, not its form: 2^10 is 1024.
    A gold answer that cannot be read, or does not grade as right against itself, makes every rollout
    ``not_gradable`` and is listed by ``self_check``. An answer that cannot be read, or asks for numbers too
    large to compute, is wrong.

    Raises SettingError on impossible settings.
    """

    limits_itself: ClassVar[Literal[True]] = True
    markers: tuple[str, ...] = MARKERS
    tolerance: float = 0.0
    timeout: float = 2.0
    name: str = "mathematics"

    def __post_init__(self) -> None:
        if not self.markers or not all(marker.strip() for marker in self.markers):
            raise SettingError(f'grader {self.name!r} needs markers, for example ["{BOX}", "Answer:"]')
        if not 0.0 <= self.tolerance < 1.0:
            raise SettingError(f"grader {self.name!r}: tolerance must be in [0, 1), got {self.tolerance}")
        if not 0.0 < self.timeout < math.inf:
            raise SettingError(f"grader {self.name!r}: timeout must be > 0 seconds, got {self.timeout}")

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        gold = _text(prompt.answer)
        fault = gold if isinstance(gold, GoldFault) else self._fault(gold)
        may_be_read = fault is not None and fault.symbolic
        if may_be_read and await asyncio.to_thread(symbolic.reads, str(gold), self.timeout):
            fault = None
        if fault is not None or isinstance(gold, GoldFault):
            return _ungraded(GradeState.NOT_GRADABLE, _told(fault))
        place = find_answer(self._prefilled(prompt) + rollout.text, self.markers)
        if place.answer is None:
            return Grade.of(0.0, detail=place.reason)
        judgement = judge(place.answer, gold, self.tolerance)
        if judgement.verdict is not None:
            return Grade.of(float(judgement.verdict), detail=judgement.reason)
        return await self._symbolic(place.answer, gold, rollout)

    def read(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The answer given, in one spelling where equal answers can be told without comparing; or None."""
        place = find_answer(self._prefilled(prompt) + rollout.text, self.markers)
        return None if place.answer is None else canonical(place.answer)

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """Every gold answer that cannot be read or does not grade as right in its own marked form."""
        found = [(prompt, self.fault_of(prompt.answer)) for prompt in prompts]
        return [Unverifiable(p.id, repr(p.answer), reason) for p, reason in found if reason is not None]

    def fault_of(self, answer: Any) -> str | None:
        """Why this gold answer cannot be graded against; None when it can."""
        gold = _text(answer)
        fault = gold if isinstance(gold, GoldFault) else self._fault(gold)
        if fault is None or (fault.symbolic and symbolic.reads(str(gold), self.timeout)):
            return None
        return _told(fault)

    def marked(self, answer: str) -> str:
        """The answer as a response should give it: behind the first marker."""
        marker = self.markers[0].strip()
        return f"{marker}{{{answer}}}" if marker == BOX else f"{marker} {answer}{closing_of(marker)}"

    def _fault(self, gold: str) -> GoldFault | None:
        fault = gold_fault(gold)
        if fault is None and find_answer(self.marked(gold), self.markers).answer is None:
            return GoldFault(f"the gold answer {gold!r} breaks its own marker {self.marked('…')}")
        return fault

    async def _symbolic(self, answer: str, gold: str, rollout: Rollout) -> Grade:
        """The verdict of the symbolic checker; what it refuses to try is wrong."""
        if (why := symbolic.refusal(answer)) is not None:
            return Grade.of(0.0, detail=f"{why} in the answer")
        if not symbolic.is_installed():
            return _ungraded(GradeState.NOT_GRADABLE, f"our rules cannot decide; {symbolic.MISSING}")
        try:
            verdict = await symbolic.check(answer, gold, self.timeout)
        except WorkerTimeoutError:
            return _ungraded(GradeState.TIMEOUT, f"no verdict on {rollout.key} within {self.timeout:g} s")
        except WorkerFaultError as fault:
            if fault.kind != "MemoryError":
                raise
            return _ungraded(GradeState.TIMEOUT, f"no verdict on {rollout.key} within a worker's memory")
        return Grade.of(float(verdict), detail=f"by sympy {'' if verdict else 'not '}equivalent")

    def _prefilled(self, prompt: Prompt) -> str:
        """What the prompt itself ends with, a marker or ``<think>``: the response goes on from there."""
        tail = prompt.text.rstrip()
        endings = [f"{BOX}{{" if marker == BOX else marker.strip() for marker in self.markers]
        return next((ending for ending in [*endings, "<think>"] if tail.endswith(ending)), "")


def _text(answer: Any) -> str | GoldFault:
    """A gold answer as text: numbers too, nothing else."""
    if answer is None or isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return GoldFault(f"the gold answer {answer!r} is neither text nor a number")
    if isinstance(answer, float) and not math.isfinite(answer):
        return GoldFault(f"the gold answer {answer!r} is not finite")
    if isinstance(answer, str) and answer.count(BOX) > 1:
        return GoldFault(f"the gold answer {answer!r} has several boxes; write its parts as one list")
    return unboxed(str(answer))


def _told(fault: GoldFault | None) -> str:
    assert fault is not None
    missing = fault.symbolic and not symbolic.is_installed()
    return f"{fault.reason}; {symbolic.MISSING}" if missing else fault.reason


def _ungraded(state: GradeState, detail: str) -> Grade:
    return Grade(state=state, value=None, detail=detail)
