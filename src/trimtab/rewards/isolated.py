"""Graders in worker processes that can be killed: nothing that a grader does there can stop the run.

    IsolatedFunction   a user's own function, the default for ``path.py:function``
    IsolatedGrader     a built-in grader, where ``isolated = true`` asks for it

Each worker imports the grader's file itself: what it keeps in its module's variables belongs to that worker,
and is gone when the worker is replaced. Workers see no GPU. What a grader prints is shown only if its worker
dies. Prompt and rollout are sent as JSON, so ``prompt.meta`` must hold what JSON can.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from trimtab.errors import DataError, SettingError, nearest
from trimtab.rewards.adapters import AdapterOptions, Graded
from trimtab.rewards.grader import Grader, Reading, SelfChecking, Unverifiable
from trimtab.rewards.worker_keeper import Call
from trimtab.rewards.workers import WorkerFaultError, WorkerPool, located
from trimtab.types import Grade, GradeState, Prompt, Rollout

FUNCTION = Path(__file__).with_name("function_process.py")
BUILTIN = Path(__file__).with_name("builtin_process.py")
OPT_OUT = "set isolated = false on this grader if it can only run inside the training process"


class IsolatedFunction:
    """Asks a user's function, in a worker, about one answer, or about all answers of a prompt at once where
    it is written so (``sees_group``). What it may return is the same as for ``FunctionGrader``.

    file, function: as ``find_file`` gives them. timeout: seconds for one answer, counted from when a worker
    begins with it; a function that sees all answers has as much for each. together: answers that one worker
    grades at once where the function is a coroutine.

    Raises SettingError, at once, when the function cannot be loaded in a worker.
    """

    limits_itself: ClassVar[Literal[True]] = True

    def __init__(
        self,
        file: Path,
        function: str,
        *,
        pool: WorkerPool,
        timeout: float,
        together: int = 1,
        name: str | None = None,
        options: AdapterOptions = AdapterOptions(),
    ) -> None:
        self.name = name or function
        self.timeout = timeout
        self.pool = pool
        self._place = located(f"{file}:{function}")
        self._options = json.dumps({"name": self.name, "adapter": dataclasses.asdict(options)})
        about = self._about(file, function)
        self.sees_group: bool = about["together"]
        self._together = together if about["coroutine"] else 1

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        (graded,) = await self.grade_group(prompt, [rollout])
        if isinstance(graded, Exception):
            raise graded
        return graded

    async def grade_group(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Graded]:
        """A grade, or the fault it was met with, for each of these answers."""
        call = Call(
            *self._place,
            payload_of(prompt, rollouts),
            self.timeout * len(rollouts),
            through=str(FUNCTION),
            options=self._options,
            together=self._together,
        )
        return _graded(await asyncio.wrap_future(self.pool.put(call)), self._place[1])

    def _about(self, file: Path, function: str) -> dict[str, Any]:
        """What a worker says of the function. Raises SettingError where it cannot be used."""
        place = f"{file}:{function}"
        call = Call(*self._place, None, 0.0, through=str(FUNCTION), options=self._options)
        try:
            about: dict[str, Any] = self.pool.load(call)
        except WorkerFaultError as fault:
            raise SettingError(
                f"grader {place!r}: importing {file} in a worker process raised {fault.said}; {OPT_OUT}"
            ) from fault
        except (TimeoutError, RuntimeError) as fault:
            raise SettingError(
                f"grader {place!r} cannot be loaded in a worker process: {fault}; {OPT_OUT}"
            ) from fault
        if about["fault"] is not None:
            hint = nearest(function, about["functions"]) if about.get("functions") else ""
            raise SettingError(f"grader {place!r}: {file.name if hint else ''} {about['fault']}{hint}")
        return about


class IsolatedGrader:
    """A built-in grader in a worker. Golds are checked and answers read here, by the grader itself."""

    limits_itself: ClassVar[Literal[True]] = True

    def __init__(
        self, grader: Grader, kind: str, options: Mapping[str, Any], *, pool: WorkerPool, timeout: float
    ) -> None:
        self.name = grader.name
        self.grader = grader
        self.timeout = timeout
        self.pool = pool
        self._options = json.dumps({"name": kind, "label": grader.name, "options": dict(options)})

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        call = Call(
            str(BUILTIN),
            "adapt",
            payload_of(prompt, [rollout]),
            self.timeout,
            through=str(BUILTIN),
            options=self._options,
        )
        (graded,) = _graded(await asyncio.wrap_future(self.pool.put(call)), self.name)
        if isinstance(graded, Exception):
            raise graded
        return graded

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        return self.grader.self_check(prompts) if isinstance(self.grader, SelfChecking) else []

    def read(self, prompt: Prompt, rollout: Rollout) -> str | None:
        return self.grader.read(prompt, rollout) if isinstance(self.grader, Reading) else None


def _graded(results: Sequence[dict[str, Any]], function: str) -> list[Graded]:
    """What came back from a worker for each answer."""
    graded: list[Graded] = []
    for result in results:
        if "fault" in result:
            graded.append(WorkerFaultError.of(function, result["fault"]))
        else:
            graded.append(Grade(**{**result, "state": GradeState(result["state"])}))
    return graded


def payload_of(prompt: Prompt, rollouts: Sequence[Rollout]) -> str:
    """Prompt and rollouts as JSON text. Raises DataError, naming the field, for what JSON cannot hold."""
    answers = ", ".join(_encoded(rollout, rollout.key) for rollout in rollouts)
    return f'{{"prompt": {_encoded_prompt(prompt)}, "rollouts": [{answers}]}}'


@lru_cache(maxsize=64)
def _encoded_prompt(prompt: Prompt) -> str:
    """Once for all answers to it."""
    return _encoded(prompt, f"prompt {prompt.id}")


def _encoded(noun: Prompt | Rollout, called: str) -> str:
    """A noun as JSON text: its arrays as their bytes, the rest as it is."""
    arrays: dict[str, tuple[str, str]] = {}
    plain: dict[str, Any] = {}
    for name in noun.__slots__:
        value = getattr(noun, name)
        if isinstance(value, np.ndarray):
            arrays[name] = (str(value.dtype), b64encode(np.ascontiguousarray(value).tobytes()).decode())
        else:
            plain[name] = value
    try:
        return json.dumps({"plain": plain, "arrays": arrays}, default=_as_json)
    except (TypeError, ValueError) as fault:
        name = next(name for name, value in plain.items() if not _fits_json(value))
        raise DataError(
            f"{called}: its {name} cannot be sent to a worker process ({fault}); keep numbers, text, lists "
            f"and tables in the data's columns, or {OPT_OUT}"
        ) from None


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _fits_json(value: Any) -> bool:
    try:
        json.dumps(value, default=_as_json)
    except (TypeError, ValueError):
        return False
    return True
