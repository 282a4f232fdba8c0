"""A user's function in a worker: prompt and rollouts out of JSON, the function asked, its grades into JSON.

``adapt`` is called by worker_process.py in its process. torch is only imported where the user's file does so.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from trimtab.errors import SettingError
from trimtab.rewards.adapters import Adapted, AdapterOptions
from trimtab.types import Finish, Grade, Prompt, Rollout, VersionSpan


def adapt(module: ModuleType, name: str, options: str) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """The function as one that takes and returns JSON, and what the training process asks about it.

    options: ``name`` and ``adapter`` options, as JSON.
    about: ``fault``, why it cannot be used, or None; ``together``, does it see all answers to a prompt at
    once; ``coroutine``, can one worker ask it about several prompts or answers at once.
    """
    function: Any = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, member in vars(module).items() if inspect.isfunction(member)]
        return _missing, {"fault": f"has no function {name!r}", "functions": functions}
    given = json.loads(options)
    settings = {**given["adapter"], "range": tuple(given["adapter"]["range"])}
    try:
        adapted = Adapted(function, given["name"], AdapterOptions(**settings))
    except SettingError as fault:
        return _missing, {"fault": str(fault)}

    async def ask(payload: Any) -> list[dict[str, Any] | Exception]:
        prompt = prompt_from(payload["prompt"])
        graded = await adapted.grades(prompt, [rollout_from(sent) for sent in payload["rollouts"]])
        return [grade if isinstance(grade, Exception) else table_of(grade) for grade in graded]

    about = {"fault": None, "together": adapted.together, "coroutine": _is_coroutine(function)}
    return ask, about


def _missing(payload: Any) -> Any:
    raise LookupError("there is no such function")


def _is_coroutine(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__ if not inspect.isfunction(function) else function
    )


def prompt_from(sent: dict[str, Any]) -> Prompt:
    """A prompt as isolated.py has sent it."""
    fields = _fields(sent)
    if fields["messages"] is not None:
        fields["messages"] = tuple(fields["messages"])
    return Prompt(**fields)


def rollout_from(sent: dict[str, Any]) -> Rollout:
    """A rollout as isolated.py has sent it."""
    fields = _fields(sent)
    fields["finish"] = Finish(fields["finish"])
    fields["versions"] = tuple(VersionSpan(*span) for span in fields["versions"])
    return Rollout(**fields)


def table_of(grade: Grade) -> dict[str, Any]:
    """A grade as JSON has it."""
    return {
        "state": str(grade.state),
        "value": grade.value,
        "parts": dict(grade.parts),
        "detail": grade.detail,
    }


def _fields(sent: dict[str, Any]) -> dict[str, Any]:
    arrays = {
        name: np.frombuffer(base64.b64decode(data), dtype=kind).copy()
        for name, (kind, data) in sent["arrays"].items()
    }
    return {**sent["plain"], **arrays}
