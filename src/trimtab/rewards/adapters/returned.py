"""What a reward function returned, read strictly: one number for each answer, on a declared range.

    value = (returned - low) / (high - low)

Accepted: numbers and bools, also numpy's and 0-d arrays and tensors; None for "cannot be graded". Refused,
naming the function and the answer: text, lists, NaN, and numbers outside the range.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.types import UNIFORM_TOLERANCE, Grade, GradeState

Graded = Grade | Exception
"""The grade of one answer, or the fault that it was met with."""

UNIT_RANGE = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a function said of one answer: a number or None, numbers that it gave besides, and a remark."""

    value: Any
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    detail: str = ""


def grade(returned: Returned, function: str, answer: str, bounds: tuple[float, float]) -> Grade:
    """The grade that this means. ``answer`` names the answer in errors.

    Raises TypeError or ValueError, naming function and answer, when it means none.
    """
    if isinstance(returned.value, Grade):
        return returned.value
    if returned.value is None:
        told = f"; {returned.detail}" if returned.detail else ""
        detail = f"function {function!r} returned None{told}"
        return Grade(state=GradeState.NOT_GRADABLE, value=None, parts=returned.parts, detail=detail)
    number = as_number(returned.value)
    if number is None:
        raise TypeError(
            f"function {function!r} returned {short(returned.value)} ({type(returned.value).__name__}) for "
            f"{answer}; return one number or bool, or None for an answer it cannot grade"
        )
    if math.isnan(number):
        raise ValueError(
            f"function {function!r} returned NaN for {answer}; return None for an answer it cannot grade"
        )
    low, high = bounds
    value = (number - low) / (high - low)
    if not -UNIFORM_TOLERANCE <= value <= 1.0 + UNIFORM_TOLERANCE:
        raise ValueError(
            f"function {function!r} returned {number:g} for {answer}, outside [{low:g}, {high:g}]; declare "
            "what it can return with options = { range = [LOW, HIGH] }, which grades LOW as 0 and HIGH as 1"
        )
    return Grade.of(min(max(value, 0.0), 1.0), parts=returned.parts, detail=returned.detail)


def as_number(value: Any) -> float | None:
    """A float for every kind of real number, bool, 0-d array or tensor; None for anything else.

    A whole number too large for a float is infinite.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    number: Any = value
    if not isinstance(value, numbers.Real | np.bool_):
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def one_for_each(returned: Any, count: int, function: str) -> list[Any]:
    """The entries of a list, tuple, or one-dimensional array or tensor of exactly ``count``.

    Raises TypeError for anything else, ValueError for another length, naming the function.
    """
    if getattr(returned, "ndim", None) == 1 and hasattr(returned, "tolist"):
        returned = returned.tolist()
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        raise TypeError(
            f"function {function!r} returned {short(returned)} ({type(returned).__name__}) for {count} "
            "answers; return a list with one number for each"
        )
    if len(returned) != count:
        raise ValueError(
            f"function {function!r} returned {len(returned)} reward{'s' * (len(returned) != 1)} for {count} "
            "answers; return exactly one for each"
        )
    return list(returned)


def numbers_in(values: Mapping[str, Any], *without: str) -> dict[str, float]:
    """The finite numbers among these values, by name."""
    read = {_plain(name): as_number(value) for name, value in values.items() if name not in without}
    return {name: number for name, number in read.items() if number is not None and math.isfinite(number)}


def _plain(name: Any) -> str:
    """A name that can be written as UTF-8."""
    return str(name).encode("utf-8", "replace").decode()


def short(value: Any, most: int = 60) -> str:
    """``repr`` of a value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
