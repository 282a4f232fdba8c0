"""A reward function of any known form as one thing: prompt and answers in, a grade for each answer out."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.errors import SettingError
from trimtab.rewards.adapters.arguments import Asked, answers_named
from trimtab.rewards.adapters.recognition import AUTO, FORMS, recognise
from trimtab.rewards.adapters.returned import UNIT_RANGE, Graded, Returned, grade
from trimtab.types import Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions:
    """How a function is asked and what its numbers mean.

    adapter: the form it is written in, see recognition.py; ``auto`` tells by its parameters.
    range: what it can return, (low, high); low is graded 0, high 1, and between them evenly. A number outside
        is a fault of the function.
    messages: whether prompts and completions are lists of messages. None: as the framework does it, for TRL
        as the rows' prompts are, for verifiers always.
    arguments: passed by name besides (verl: reward_kwargs).

    Raises SettingError on an impossible range.
    """

    adapter: str = AUTO
    range: tuple[float, float] = UNIT_RANGE
    messages: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SettingError(
                f"the range of a function is [low, high] with low < high, got [{low:g}, {high:g}]"
            )


class Adapted:
    """A function with the form it was recognised as.

    ``together``: it sees all answers of a prompt at once, as batch functions do; others see one at a time.
    Raises SettingError when the form cannot be told.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, options: AdapterOptions = AdapterOptions()
    ) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.form = recognise(function, name, options.adapter)
        self.together = FORMS[self.form].together

    async def grades(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Graded]:
        """A grade for each answer, in order; what cannot be read as one is the fault that says why.

        A function that sees all answers at once fails for all of them; then its exception is raised.
        """
        names = answers_named(rollouts)
        if self.together:
            rows = await self._ask(prompt, rollouts)
            return [self._graded(row, answer) for row, answer in zip(rows, names, strict=True)]
        found: list[Graded] = []
        for rollout, answer in zip(rollouts, names, strict=True):
            try:
                (row,) = await self._ask(prompt, [rollout])
                found.append(self._graded(row, answer))
            except Exception as fault:
                found.append(fault)
        return found

    async def _ask(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Returned]:
        options = self.options
        asked = Asked(self.function, self.name, prompt, rollouts, options.messages, options.arguments)
        return await FORMS[self.form].call(asked)

    def _graded(self, row: Returned, answer: str) -> Graded:
        try:
            return grade(row, self.name, answer, self.options.range)
        except (TypeError, ValueError) as fault:
            return fault
