"""TRL: ``def f(completions, **columns) -> list[float | None]``, for all answers of a prompt at once.

Also offered by name: prompts, completion_ids, trainer_state, log_extra, log_metric. Where the rows' prompts
are messages, prompts and completions are lists of messages, else text.

Source: TRL's documentation of the GRPO trainer, "Using a custom reward function" (read at 1.16).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from trimtab.rewards.adapters.arguments import Asked, columns_of, completion_as, prompt_as
from trimtab.rewards.adapters.returned import Returned, as_number, numbers_in, one_for_each, short

_NEVER_COLUMNS = ("prompt", "completion", "completion_ids")


class TrainerState:
    """What stands for TRL's trainer state. ``global_step``: the version of the policy that sampled the group.

    Everything else raises: a grader knows nothing more of the run.
    """

    def __init__(self, version: int) -> None:
        self.global_step = version

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"trainer_state.{name} is not known to a grader; trimtab offers global_step only"
        )


class Log:
    """Keeps what the function logs: columns (a value an answer) and metrics (one number)."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self.metrics: dict[str, Any] = {}

    def extra(self, column: str, values: Sequence[Any]) -> None:
        self.columns[column] = list(values)

    def metric(self, name: str, value: Any) -> None:
        self.metrics[name] = value


async def call(asked: Asked) -> list[Returned]:
    """Ask about all answers. What it logs becomes parts (numbers) and details (the rest) of the grades."""
    prompt, rollouts, count = asked.prompt, asked.rollouts, len(asked.rollouts)
    as_messages = prompt.messages is not None if asked.messages is None else asked.messages
    log = Log()
    columns = {key: [value] * count for key, value in columns_of(prompt).items() if key not in _NEVER_COLUMNS}
    offered = {
        **columns,
        "prompts": [prompt_as(prompt, as_messages) for _ in rollouts],
        "completions": [completion_as(rollout, as_messages) for rollout in rollouts],
        "completion_ids": [[int(token) for token in rollout.token_ids] for rollout in rollouts],
        "trainer_state": TrainerState(max((rollout.version for rollout in rollouts), default=0)),
        "log_extra": log.extra,
        "log_metric": log.metric,
    }
    returned = one_for_each(await asked.call(offered), count, asked.name)
    metrics = numbers_in(log.metrics)
    return [_row(value, log, number, count, metrics) for number, value in enumerate(returned)]


def _row(value: Any, log: Log, number: int, count: int, metrics: Mapping[str, float]) -> Returned:
    logged = {column: values[number] for column, values in log.columns.items() if len(values) == count}
    told = [f"{column}={short(entry)}" for column, entry in logged.items() if as_number(entry) is None]
    return Returned(value=value, parts={**metrics, **numbers_in(logged)}, detail=", ".join(told))
