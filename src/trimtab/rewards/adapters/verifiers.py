"""verifiers: what a rubric (v0) or a task (v1) scores with, plain or async.

    v0           def f(completion, answer, prompt, state, info, task, parser, **columns) -> float
    v0, grouped  def f(completions, answers, states, prompts, infos, tasks) -> list[float]
    v1           def f(trace, task) -> float | dict
    v1, a class  class MyTask(vf.Task[MyData]): its methods marked @vf.reward; value = sum w * r / sum w

Prompts and completions are lists of messages. What belongs to a running environment is not there: turns and
tools, and the runtime of v1.

Source: verifiers' documentation, "Environments" (v0) and "Building Tasksets" (v1, at 0.4).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.rewards.adapters.arguments import Asked, call_by_name, columns_of, completion_as, prompt_as
from trimtab.rewards.adapters.returned import Returned, as_number, numbers_in, one_for_each, short
from trimtab.rewards.adapters.verifiers_trace import TaskData, Trace
from trimtab.types import Rollout


class Parser:
    """What stands for the default parser of a rubric: it takes a completion as it is."""

    def parse(self, text: str) -> str:
        return text

    def parse_answer(self, completion: Any) -> str | None:
        """The text of the last message of the assistant; None where there is none."""
        if isinstance(completion, str):
            return completion
        said = [message["content"] for message in completion if message.get("role") == "assistant"]
        return said[-1] if said else None


async def call(asked: Asked) -> list[Returned]:
    """Ask a function of a v0 rubric about each answer by itself."""
    found: list[Returned] = []
    for rollout in asked.rollouts:
        state = _state(asked, rollout)
        offered = {**columns_of(asked.prompt), **_fields(state), "state": state, "parser": Parser()}
        found.append(Returned(value=await asked.call(offered)))
    return found


async def call_group(asked: Asked) -> list[Returned]:
    """Ask a group function of a v0 rubric about all answers at once."""
    states = [_state(asked, rollout) for rollout in asked.rollouts]
    columns = {f"{key}s": [state[key] for state in states] for key in _FIELDS}
    offered = {**columns, "states": states, "parser": Parser()}
    returned = one_for_each(await asked.call(offered), len(states), asked.name)
    return [Returned(value=value) for value in returned]


async def call_trace(asked: Asked) -> list[Returned]:
    """Ask a function of v1, or every marked method of a task class, about each answer by itself."""
    found: list[Returned] = []
    for rollout in asked.rollouts:
        trace = Trace(asked.prompt, rollout)
        if isinstance(asked.function, type):
            found.append(await _by_class(asked.function, asked, trace))
            continue
        scores = _scores(await asked.call({"task": TaskData(asked.prompt), "trace": trace}), asked.name)
        found.append(_weighted([(key, value, 1.0) for key, value in scores.items()], asked.name))
    return found


async def _by_class(task_class: type[Any], asked: Asked, trace: Trace) -> Returned:
    columns = {**columns_of(asked.prompt), "prompt": asked.prompt.text, **asked.arguments}
    data: Any = task_class.data_type() if hasattr(task_class, "data_type") else None
    task = task_class(TaskData(asked.prompt) if data is None else data.model_validate(columns))
    rewards: list[tuple[str, Any, float]] = []
    for method in reward_methods(task_class):
        offered = {"task": task.data, "trace": trace}
        returned = await call_by_name(getattr(task, method), f"{asked.name}.{method}", offered)
        weight = float(getattr(getattr(task_class, method), "_vf_weight", 1.0))
        rewards += [(key, value, weight) for key, value in _scores(returned, method).items()]
    return _weighted(rewards, asked.name)


def reward_methods(task_class: type[Any]) -> list[str]:
    """The methods of a v1 task that are marked as rewards."""
    return [key for key in dir(task_class) if getattr(getattr(task_class, key, None), "reward", None) is True]


def _scores(returned: Any, name: str) -> dict[str, Any]:
    """Scores by name: a mapping is one already, a number is the score of the function."""
    return dict(returned) if isinstance(returned, Mapping) else {name: returned}


def _weighted(rewards: Sequence[tuple[str, Any, float]], name: str) -> Returned:
    """The weighted mean of the rewards; one alone is taken as it is, so that None stays None."""
    if len(rewards) == 1:
        return Returned(value=rewards[0][1])
    read = [(key, as_number(value), weight) for key, value, weight in rewards]
    for (key, number, _), (_, value, _) in zip(read, rewards, strict=True):
        if number is None:
            raise TypeError(
                f"function {name!r}: the reward {key!r} is {short(value)} "
                f"({type(value).__name__}), not a number"
            )
    total = sum(weight for _, _, weight in read)
    if not total > 0 or any(weight < 0 for _, _, weight in read):
        raise ValueError(f"function {name!r}: the weights of its rewards must be >= 0 and not all 0")
    value = sum(weight * (number or 0.0) for _, number, weight in read) / total
    return Returned(value=value, parts=numbers_in({key: number for key, number, _ in read}))


_FIELDS = ("prompt", "completion", "answer", "task", "info")


def _state(asked: Asked, rollout: Rollout) -> dict[str, Any]:
    """The keys of a rubric's state that are known here."""
    prompt, messages = asked.prompt, asked.messages is not False
    info = prompt.meta.get("info") or {}
    return {
        "prompt": prompt_as(prompt, messages),
        "completion": completion_as(rollout, messages),
        "answer": "" if prompt.answer is None else prompt.answer,
        "task": prompt.task,
        "info": json.loads(info) if isinstance(info, str) else info,
        "example_id": prompt.id,
        "is_completed": True,
        "is_truncated": rollout.truncated,
    }


def _fields(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: state[key] for key in _FIELDS}
