"""OpenRLHF: ``def reward_func(queries, prompts, labels) -> tensor | dict``, for all answers of a prompt.

A query is the prompt and the answer as one text. A dictionary needs "rewards"; its "scores" and the numbers
in "extra_logs" become parts of the grade.

Source: OpenRLHF's examples/python/reward_func.py and math_reward_func.py.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.rewards.adapters.arguments import Asked
from trimtab.rewards.adapters.returned import Returned, numbers_in, one_for_each


async def call(asked: Asked) -> list[Returned]:
    """Ask about all answers."""
    count = len(asked.rollouts)
    offered = {
        "queries": [asked.prompt.text + rollout.text for rollout in asked.rollouts],
        "prompts": [asked.prompt.text] * count,
        "labels": [asked.prompt.answer] * count,
    }
    returned = await asked.call(offered)
    logged: dict[str, Any] = {}
    if isinstance(returned, Mapping):
        if "rewards" not in returned:
            raise TypeError(
                f"function {asked.name!r} returned a dictionary without 'rewards' "
                f"(keys: {', '.join(map(str, returned))})"
            )
        extra = returned.get("extra_logs")
        logged = {**(extra if isinstance(extra, Mapping) else {}), "scores": returned.get("scores")}
        returned = returned["rewards"]
    rewards = one_for_each(_flat(returned), count, asked.name)
    return [
        Returned(value=value, parts=numbers_in({key: _entry(log, i, count) for key, log in logged.items()}))
        for i, value in enumerate(rewards)
    ]


def _flat(values: Any) -> Any:
    """A column of shape [G, 1] as [G]."""
    return values.reshape(-1) if getattr(values, "ndim", 0) == 2 and values.shape[1] == 1 else values


def _entry(logged: Any, number: int, count: int) -> Any:
    """The entry of one answer; what is no column of them counts for each."""
    logged = _flat(logged)
    if getattr(logged, "ndim", 0) == 1 or isinstance(logged, list | tuple):
        return logged[number] if len(logged) == count else None
    return logged
