"""verl: ``def compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float | dict``.

A dictionary needs "score"; its other numbers become parts of the grade. The batch form with the plural names
``data_sources, solution_strs, ground_truths, extra_infos`` is asked about all answers of a prompt at once.

Source: verl's documentation, "Implement Reward Function for Dataset", and its reward managers.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.rewards.adapters.arguments import Asked
from trimtab.rewards.adapters.returned import Returned, numbers_in, one_for_each
from trimtab.types import Prompt, Rollout


async def call(asked: Asked) -> list[Returned]:
    """Ask about each answer by itself. ``asked.arguments`` are what verl calls reward_kwargs."""
    returned = [await asked.call(_row(asked.prompt, rollout)) for rollout in asked.rollouts]
    return [_read(value, asked.name) for value in returned]


async def call_batch(asked: Asked) -> list[Returned]:
    """Ask about all answers at once."""
    rows = [_row(asked.prompt, rollout) for rollout in asked.rollouts]
    offered = {
        "data_sources": [row["data_source"] for row in rows],
        "solution_strs": [row["solution_str"] for row in rows],
        "ground_truths": [row["ground_truth"] for row in rows],
        "extra_infos": [row["extra_info"] for row in rows],
    }
    returned = await asked.call(offered)
    return [_read(value, asked.name) for value in one_for_each(returned, len(rows), asked.name)]


def _row(prompt: Prompt, rollout: Rollout) -> dict[str, Any]:
    extra = prompt.meta.get("extra_info")
    return {
        "data_source": prompt.meta.get("data_source", prompt.task),
        "solution_str": rollout.text,
        "ground_truth": prompt.answer,
        "extra_info": dict(extra) if isinstance(extra, Mapping) else {},
    }


def _read(returned: Any, name: str) -> Returned:
    if not isinstance(returned, Mapping):
        return Returned(value=returned)
    if "score" not in returned:
        raise TypeError(
            f"function {name!r} returned a dictionary without 'score' (keys: {', '.join(map(str, returned))})"
        )
    return Returned(value=returned["score"], parts=numbers_in(returned, "score"))
