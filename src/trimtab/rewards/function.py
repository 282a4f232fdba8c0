"""A user's own Python function as a grader: ``def f(prompt, rollout) -> float | bool | Grade | None``, or one
written for TRL, verl, OpenRLHF or verifiers (adapters/).

``FunctionGrader`` calls it inside the training process and trusts it: an endless synchronous function stops
the run, an ``async def`` one is cut off by the rubric's limit. isolated.py is the grader that a recipe gets.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from trimtab.errors import SettingError, nearest
from trimtab.rewards.adapters import Adapted, AdapterOptions, Graded
from trimtab.types import Grade, Prompt, Rollout


class FunctionGrader:
    """Calls the function once for each answer, or once for all answers to a prompt where it is written so
    (``sees_group``).

    Accepted: a number in [0, 1] or a bool, also numpy's and 0-d arrays and tensors; a ``Grade``;
    None for "cannot be graded". Refused, naming the function: text, lists, NaN, numbers outside [0, 1].
    ``AdapterOptions.range`` declares another range of numbers.
    Raises SettingError when its parameters are of no known form.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        options: AdapterOptions = AdapterOptions(),
    ) -> None:
        self.function = function
        self.name: str = name or getattr(function, "__name__", type(function).__name__)
        self._adapted = Adapted(function, self.name, options)
        self.sees_group = self._adapted.together

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        (graded,) = await self._adapted.grades(prompt, [rollout])
        if isinstance(graded, Exception):
            raise graded
        return graded

    async def grade_group(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Graded]:
        """A grade, or the fault it was met with, for each of these answers."""
        return await self._adapted.grades(prompt, rollouts)


def find_file(place: str, folder: Path | None = None) -> tuple[Path, str]:
    """File and name of ``path.py:name``; a relative path starts at ``folder``.

    Raises SettingError when it is not written so, or the file is not there.
    """
    path, _, name = place.rpartition(":")
    file = (folder or Path()) / path
    if not path.endswith(".py") or not name:
        raise SettingError(f"a function grader is named path.py:function, got {place!r}")
    if not file.is_file():
        raise SettingError(f"grader {place!r}: there is no file {file}")
    return file, name


def load_function(place: str, folder: Path | None = None) -> Callable[..., Any]:
    """The function that ``path.py:name`` names; a relative path starts at ``folder``.

    Raises SettingError when the file or the function is not there, or the file cannot be imported.
    """
    file, name = find_file(place, folder)
    module = _import(file, place)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, member in vars(module).items() if inspect.isfunction(member)]
        hint = nearest(name, functions) if functions else ""
        raise SettingError(f"grader {place!r}: {file.name} has no function {name!r}{hint}")
    return found


def _import(file: Path, place: str) -> ModuleType:
    name = f"trimtab_grader_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SettingError(f"grader {place!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        raise SettingError(
            f"grader {place!r}: importing {file} raised {type(fault).__name__}: {fault}"
        ) from fault
    return module
