"""Calling a function by the names of its parameters: it gets what it asks for, and nothing else."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.types import Prompt, Rollout

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A function, and the answers to one prompt that it is asked about.

    messages: whether texts are given as lists of messages; None: as the framework does it. arguments: passed
    by name besides.
    """

    function: Callable[..., Any]
    name: str
    prompt: Prompt
    rollouts: Sequence[Rollout]
    messages: bool | None
    arguments: Mapping[str, Any]

    async def call(self, offered: Mapping[str, Any]) -> Any:
        """What the function returns for these arguments, those that it names."""
        return await call_by_name(self.function, self.name, {**offered, **self.arguments})


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters by name; none where Python cannot tell them."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def named_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that can be passed by name."""
    return frozenset(name for name, p in parameters_of(function).items() if p.kind in _NAMED)


async def call_by_name(function: Callable[..., Any], name: str, offered: Mapping[str, Any]) -> Any:
    """``function(**offered)``, awaited if it must be, without what its parameters do not name.

    Raises TypeError when it needs a parameter that is not offered; exit() becomes an error of the function.
    """
    parameters = parameters_of(function)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        passed = dict(offered)
    else:
        passed = {key: value for key, value in offered.items() if key in parameters}
    lacking = [
        key
        for key, p in parameters.items()
        if p.kind in _NAMED and p.default is inspect.Parameter.empty and key not in passed
    ]
    if lacking:
        raise TypeError(
            f"function {name!r} needs the argument {lacking[0]!r}, and the rows have no such column; "
            f"it can have: {', '.join(sorted(offered))}"
        )
    try:
        returned = function(**passed)
        return await returned if inspect.isawaitable(returned) else returned
    except SystemExit as fault:
        raise RuntimeError(f"function {name!r} called exit({fault.code})") from fault


def columns_of(prompt: Prompt) -> dict[str, Any]:
    """Every column of the prompt's row; ``id``, ``task`` and ``answer`` also where no column is called so."""
    return {"id": prompt.id, "task": prompt.task, "answer": prompt.answer, **prompt.meta}


def prompt_as(prompt: Prompt, messages: bool) -> str | list[Message]:
    """The prompt as a list of messages or as text. A text prompt becomes one message of the user."""
    if not messages:
        return prompt.text
    if prompt.messages is None:
        return [{"role": "user", "content": prompt.text}]
    return [dict(message) for message in prompt.messages]


def completion_as(rollout: Rollout, messages: bool) -> str | list[Message]:
    """The answer as a list of one message, or as text; only what was sampled, never the prompt's ending."""
    return [{"role": "assistant", "content": rollout.text}] if messages else rollout.text


def answers_named(rollouts: Sequence[Rollout]) -> list[str]:
    """How errors name each answer: ``answer 3 of 8 (sums-17#0/2)``."""
    count = len(rollouts)
    return [f"answer {number} of {count} ({rollout.key})" for number, rollout in enumerate(rollouts, start=1)]
