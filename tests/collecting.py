"""The loop's collection over scripted answers, with everything behind the engine as in a real run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tests.handmade import prompt_of
from trimtab.data.cursor import PromptCursor
from trimtab.data.memory import MemoryConfig, PromptMemory
from trimtab.data.selection import Selection
from trimtab.loop.collect import Collected, Wanted, collect
from trimtab.loop.state import LoopState
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import Sampling
from trimtab.rollout.scripted import ScriptedEngine
from trimtab.types import Draw, Group, Prompt, Rollout

GROUP = 4


def first_character(prompt: Prompt, rollout: Rollout) -> float | None:
    """ "1..." is right, "0..." wrong, "-" cannot be graded, "!" breaks the grader."""
    del prompt
    if rollout.text.startswith("!"):
        raise ZeroDivisionError("told to fail")
    return None if rollout.text.startswith("-") else float(rollout.text[0])


class Watched(ScriptedEngine):
    """Remembers how many draws each call was asked for; yields in an order of its own choice."""

    def __init__(self, answers: Any, *, order: int = 1) -> None:
        super().__init__(answers)
        self.asked: list[int] = []
        self.order = order

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        self.asked.append(len(draws))
        groups = [group async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose)]
        for group in groups[:: self.order]:
            yield group


class Bench:
    """A loop's state and machines over scripted prompts: id -> one character an answer."""

    def __init__(
        self,
        script: Mapping[str, Sequence[str]],
        *,
        wanted: int,
        memory: MemoryConfig | None = None,
        order: int = 1,
        max_new_tokens: int = 100,
    ) -> None:
        self.engine = Watched(script, order=order)
        self.rubric = Rubric([(FunctionGrader(first_character), 1.0)], truncated="grade")
        prompts = [prompt_of(name) for name in script]
        self.state = LoopState(PromptCursor(prompts, 0), PromptMemory(memory))
        self.wanted = Wanted(wanted, GROUP, Sampling(max_new_tokens=max_new_tokens), seed=0)

    def step(self, selection: Selection | None = None) -> Collected:
        """Collect once; the next step has a new policy version, as after an update."""
        found = asyncio.run(collect(self.engine, self.rubric, self.state, selection, self.wanted))
        self.state.counters.step += 1
        self.engine.version += 1
        return found


def mixed(count: int) -> dict[str, str]:
    return {f"p{i}": "1000" for i in range(count)}


def names(groups: Sequence[Any]) -> list[str]:
    return [scored.group.prompt.id for scored in groups]
