"""From the ``[reward]`` table to a rubric.

``GRADERS`` names the built-in graders. Each is a frozen dataclass whose fields are its options in a
recipe: ``graders = [{name = "answer", options = {marker = "####"}}]``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from trimtab.errors import SettingError, nearest
from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.code import CodeTests
from trimtab.rewards.format import FormatMatch
from trimtab.rewards.function import FunctionGrader, load_function
from trimtab.rewards.grader import Grader
from trimtab.rewards.mathematics import MathematicsMatch
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric

GRADERS: dict[str, type[Any]] = {
    "answer": AnswerMatch,
    "code": CodeTests,
    "format": FormatMatch,
    "mathematics": MathematicsMatch,
}


def build_rubric(config: RewardConfig, folder: Path | None = None) -> Rubric:
    """The rubric that a recipe asks for; relative grader files start at ``folder``.

    Raises SettingError on unknown graders or options, each with the nearest known name.
    """
    return Rubric(
        [(build_grader(grader, folder), grader.weight) for grader in config.graders],
        truncated=config.truncated,
        max_ungraded_share=config.max_ungraded_share,
        timeout=config.timeout,
    )


def build_grader(config: GraderConfig, folder: Path | None = None) -> Grader:
    """One grader, by name or ``path.py:function``."""
    if ".py:" in config.name:
        if config.options:
            raise SettingError(
                f"grader {config.name!r} is a function and takes no options, got {sorted(config.options)}"
            )
        return FunctionGrader(load_function(config.name, folder), config.label)
    constructor = GRADERS.get(config.name)
    if constructor is None:
        own = "; a function of your own is named path.py:function"
        raise SettingError(f"there is no grader {config.name!r}{nearest(config.name, GRADERS)}{own}")
    options = _checked(config, constructor)
    return constructor(**options, name=config.label or config.name)


def _checked(config: GraderConfig, constructor: type[Any]) -> dict[str, Any]:
    """The options, lists as tuples. Raises SettingError for an unknown one or a wrong type."""
    hints = get_type_hints(constructor)
    known = {field.name for field in dataclasses.fields(constructor)} - {"name"}
    options: dict[str, Any] = {}
    for key, given in config.options.items():
        if key not in known:
            raise SettingError(f"grader {config.name!r} has no option {key!r}{nearest(key, known)}")
        plain = tuple(given) if isinstance(given, list) else given
        try:
            options[key] = TypeAdapter(hints[key]).validate_python(plain, strict=True)
        except ValidationError as fault:
            why = fault.errors()[0]["msg"].lower()
            raise SettingError(f"grader {config.name!r}: option {key} cannot be {given!r}: {why}") from None
    return options
