"""A user's own Python function as a grader: ``def f(prompt, rollout) -> float | bool | Grade | None``.

It runs inside the training process and is trusted: an endless synchronous function stops the run,
an ``async def`` one is cut off by the rubric's limit.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import inspect
import math
import numbers
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from trimtab.errors import SettingError, nearest
from trimtab.types import Grade, GradeState, Prompt, Rollout


class FunctionGrader:
    """Calls ``function(prompt, rollout)`` once for each answer.

    Accepted: a number in [0, 1] or a bool, also numpy's and 0-d arrays and tensors; a ``Grade``;
    None for "cannot be graded". Refused, naming the function: text, lists, NaN, numbers outside [0, 1].
    Rewards on another scale are made from grades by the algorithm's ``RewardScale``.
    """

    def __init__(self, function: Callable[[Prompt, Rollout], Any], name: str | None = None) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        try:
            returned = self.function(prompt, rollout)
            if inspect.isawaitable(returned):
                returned = await returned
        except SystemExit as fault:
            raise RuntimeError(f"function {self.name!r} called exit({fault.code})") from fault
        return as_grade(returned, self.name)


def as_grade(returned: Any, function: str) -> Grade:
    """The grade that a function's return value means.

    Raises TypeError or ValueError, naming the function, when it means none.
    """
    if isinstance(returned, Grade):
        return returned
    if returned is None:
        return Grade(state=GradeState.NOT_GRADABLE, value=None, detail=f"function {function!r} returned None")
    if isinstance(returned, np.ndarray | torch.Tensor) and returned.ndim == 0:
        returned = returned.item()
    if not isinstance(returned, numbers.Real | np.bool_):
        raise TypeError(
            f"function {function!r} returned {returned!r} ({type(returned).__name__}) for one answer; "
            "return one number in [0, 1], a bool, a Grade, or None"
        )
    value = float(returned)
    if math.isnan(value):
        raise ValueError(f"function {function!r} returned NaN; return None for an answer it cannot grade")
    if not 0.0 <= value <= 1.0:
        raise ValueError(
            f"function {function!r} returned {value:g}, but a grade is in [0, 1]; the algorithm's reward "
            "scale (right, wrong) sets what right and wrong answers earn"
        )
    return Grade.of(value)


def load_function(place: str, folder: Path | None = None) -> Callable[[Prompt, Rollout], Any]:
    """The function that ``path.py:name`` names; a relative path starts at ``folder``.

    Raises SettingError when the file or the function is not there, or the file cannot be imported.
    """
    path, _, name = place.rpartition(":")
    file = (folder or Path()) / path
    if not path.endswith(".py") or not name:
        raise SettingError(f"a function grader is named path.py:function, got {place!r}")
    if not file.is_file():
        raise SettingError(f"grader {place!r}: there is no file {file}")
    module = _import(file, place)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, member in vars(module).items() if inspect.isfunction(member)]
        hint = nearest(name, functions) if functions else ""
        raise SettingError(f"grader {place!r}: {file.name} has no function {name!r}{hint}")
    if not _takes_two(found):
        raise SettingError(
            f"grader {place!r}: function {name}{inspect.signature(found)} must take two arguments, "
            "(prompt, rollout)"
        )
    return found


def _import(file: Path, place: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"trimtab_grader_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise SettingError(f"grader {place!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        raise SettingError(
            f"grader {place!r}: importing {file} raised {type(fault).__name__}: {fault}"
        ) from fault
    return module


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True
