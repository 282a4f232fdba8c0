"""Which framework a reward function was written for, told by the names of its parameters.

    trimtab          rollout, or two parameters of any other names
    trl              completions, completion_ids, trainer_state, log_extra, log_metric
    verl             solution_str            verl-batch        solution_strs
    openrlhf         queries
    verifiers        completion, state       verifiers-group   states, infos, with or without completions
    verifiers-v1     trace, or a class with methods marked @vf.reward

A function that fits none, or more than one, is refused: ``options = { adapter = "NAME" }`` then says which.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from trimtab.errors import SettingError, nearest
from trimtab.rewards.adapters import native, openrlhf, trl, verifiers, verl
from trimtab.rewards.adapters.arguments import Asked, named_parameters
from trimtab.rewards.adapters.returned import Returned


class Call(Protocol):
    """Asks a function of one form about answers to one prompt."""

    async def __call__(self, asked: Asked) -> list[Returned]: ...


class Form(NamedTuple):
    """How functions of one framework are asked. ``together``: about all answers of a prompt at once."""

    call: Call
    together: bool
    example: str


FORMS: dict[str, Form] = {
    "trimtab": Form(native.call, False, "f(prompt, rollout)"),
    "trl": Form(trl.call, True, "f(completions, **columns)"),
    "verl": Form(verl.call, False, "f(data_source, solution_str, ground_truth, extra_info)"),
    "verl-batch": Form(verl.call_batch, True, "f(data_sources, solution_strs, ground_truths, extra_infos)"),
    "openrlhf": Form(openrlhf.call, True, "f(queries, prompts, labels)"),
    "verifiers": Form(verifiers.call, False, "f(completion, answer, ...)"),
    "verifiers-group": Form(verifiers.call_group, True, "f(completions, answers, states, ...)"),
    "verifiers-v1": Form(verifiers.call_trace, False, "f(trace, task)"),
}
AUTO = "auto"

_MARKS: dict[str, frozenset[str]] = {
    "trimtab": frozenset({"rollout"}),
    "trl": frozenset({"completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}),
    "verl": frozenset({"solution_str"}),
    "verl-batch": frozenset({"solution_strs"}),
    "openrlhf": frozenset({"queries"}),
    "verifiers": frozenset({"completion", "state"}),
    "verifiers-group": frozenset({"states", "infos"}),
    "verifiers-v1": frozenset({"trace"}),
}
_PLURAL = frozenset({"answers", "tasks"})
_VERIFIERS_WORDS = frozenset({"prompt", "answer", "task", "info", "parser"})


def recognise(function: Callable[..., Any], name: str, adapter: str = AUTO) -> str:
    """The name of the form of this function; ``adapter`` overrides what its signature says.

    Raises SettingError for an unknown ``adapter``, and where the signature fits no form or several.
    """
    if adapter != AUTO:
        if adapter not in FORMS:
            raise SettingError(
                f"grader {name!r} has no adapter {adapter!r}{nearest(adapter, [AUTO, *FORMS])}"
            )
        return adapter
    if isinstance(function, type):
        if verifiers.reward_methods(function):
            return "verifiers-v1"
        raise SettingError(f"grader {name!r} is a class without methods marked @vf.reward; name a function")
    fitting = _fitting(named_parameters(function), function)
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        forms = "; ".join(f"{form} {FORMS[form].example}" for form in FORMS)
        raise SettingError(
            f"grader {name!r}: the parameters of {name}{_signature(function)} are those of no known reward "
            f'function; the forms are {forms}; or say which it is with options = {{ adapter = "NAME" }}'
        )
    ways = " and ".join(f"{form} ({FORMS[form].example})" for form in fitting)
    raise SettingError(
        f"grader {name!r}: {name}{_signature(function)} can be read as {ways}; say which it is, for example "
        f'options = {{ adapter = "{fitting[0]}" }}'
    )


def _fitting(names: frozenset[str], function: Callable[..., Any]) -> list[str]:
    fitting = [form for form, marks in _MARKS.items() if names & marks]
    if fitting == ["trl"] and names & _MARKS["trl"] == {"completions"} and names & _PLURAL:
        return ["trl", "verifiers-group"]
    if fitting == ["trl", "verifiers-group"] and names & _MARKS["trl"] == {"completions"}:
        return ["verifiers-group"]
    if fitting or not _takes_two(function):
        return fitting
    return ["trimtab", "verifiers"] if names and names <= _VERIFIERS_WORDS else ["trimtab"]


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _signature(function: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"
