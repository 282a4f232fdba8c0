"""reasoning-gym's own scorers as a grader, for prompts of ``[data] task = "gym:NAME"``.

The scorers give wrong answers a little credit (countdown 0.05 for any formula). Kept as they are, such values
make groups of wrong answers look mixed, so that dynamic sampling trains on noise. So an answer is right when
its score reaches ``threshold``, else wrong; the score itself stays visible as the part ``score``.

Some scorers evaluate what the model wrote as Python. They run in a worker with a limit, and only see what
gym_scoring.py finds harmless.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError
from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.workers import WorkerFaultError, shared_pool
from trimtab.types import Grade, GradeState, Prompt, Rollout

SCORE = "trimtab.rewards.gym_scoring:score"


@dataclass(frozen=True, slots=True, kw_only=True)
class GymScore:
    """Grades by the dataset's scorer: right from ``threshold`` on, else wrong.

    marker: where the answer stands, as for the grader ``answer``; what reasoning-gym asks of models is
        ``<answer>``. A response of one line without the marker is an answer as a whole.
    threshold: in (0, 1].
    partial: the value is the score itself, partial credit and all; ``threshold`` then has no part in it.
    timeout: seconds that the scorer may take for one answer.

    Raises SettingError on impossible settings, and where reasoning-gym is not installed.
    """

    limits_itself: ClassVar[Literal[True]] = True
    marker: str = "<answer>"
    threshold: float = 1.0
    partial: bool = False
    timeout: float = 5.0
    name: str = "gym"

    def __post_init__(self) -> None:
        AnswerMatch(marker=self.marker, name=self.name)  # refuses a marker that cannot be one
        if not 0.0 < self.threshold <= 1.0:
            raise SettingError(f"grader {self.name!r}: threshold must be in (0, 1], got {self.threshold}")
        if not 0.0 < self.timeout < float("inf"):
            raise SettingError(f"grader {self.name!r}: timeout must be > 0 seconds, got {self.timeout}")
        if importlib.util.find_spec("reasoning_gym") is None:
            raise SettingError(f'grader {self.name!r} needs reasoning-gym; pip install "trimtab[gym]"')

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        entry = prompt.meta.get("gym")
        if not isinstance(entry, Mapping):
            return _ungraded(f"prompt {prompt.id} is not of a task gym:NAME")
        answer = AnswerMatch(marker=self.marker).given(prompt, rollout)
        if answer is None:
            return Grade.of(0.0, parts={"score": 0.0}, detail=f"no answer after the marker {self.marker!r}")
        payload = {"entry": dict(entry), "answer": answer}
        told = await shared_pool().run(SCORE, payload, self.timeout)
        if told["refused"]:
            return Grade.of(0.0, parts={"score": 0.0}, detail=told["refused"])
        score = min(max(float(told["score"]), 0.0), 1.0)
        value = score if self.partial else float(score >= self.threshold)
        return Grade.of(value, parts={"score": score}, detail=f"scored {score:g} by {entry['dataset']}")

    def read(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The answer given, for votes."""
        return AnswerMatch(marker=self.marker).read(prompt, rollout)

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """Every prompt that is not of the gym, or whose gold answer its scorer does not score as 1.

        Raises SettingError where a dataset's scorer cannot be trusted with model-written text.
        """
        asked = [
            (prompt, shared_pool().submit(SCORE, self._golden(prompt), self.timeout))
            for prompt in prompts
            if isinstance(prompt.meta.get("gym"), Mapping)
        ]
        found = [
            Unverifiable(prompt.id, repr(prompt.answer), "the prompt is not of a task gym:NAME")
            for prompt in prompts
            if not isinstance(prompt.meta.get("gym"), Mapping)
        ]
        for prompt, future in asked:
            try:
                told = future.result()
            except WorkerFaultError as fault:
                if fault.kind == "UntrustedScorerError":
                    raise SettingError(f"grader {self.name!r}: {fault.said.partition(': ')[2]}") from None
                found.append(Unverifiable(prompt.id, repr(prompt.answer), fault.said))
                continue
            except TimeoutError as fault:
                found.append(Unverifiable(prompt.id, repr(prompt.answer), str(fault)))
                continue
            if prompt.answer is not None and (told["refused"] or told["score"] < 1.0):
                reason = told["refused"] or f"the scorer gives its own answer {told['score']:g}"
                found.append(Unverifiable(prompt.id, repr(prompt.answer), reason))
        return found

    def _golden(self, prompt: Prompt) -> dict[str, Any]:
        return {"entry": dict(prompt.meta["gym"]), "answer": str(prompt.answer or "")}


def _ungraded(detail: str) -> Grade:
    return Grade(state=GradeState.NOT_GRADABLE, value=None, detail=detail)
