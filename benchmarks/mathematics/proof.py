"""Do two meanings say the same? Decided by mpmath with 120 digits, and sympy for intervals."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import mpmath
import sympy
from benchmarks.mathematics.rows import Meaning

DIGITS = 60
"""Two values are one when they agree to this many digits of the larger."""
LETTERS = "abcdkmnprstuvwxyz"
PLACES = ((5, 7, 13, 11), (23, 9, 3, 13), (-170, 12, -290, 8))
"""Each place gives every letter a number of its own."""


def same(one: Meaning, other: Meaning) -> bool:
    """True when both are of one sort and equal: sets without order, tuples and matrices with it."""
    ((sort, left),), ((other_sort, right),) = one.items(), other.items()
    if sort != other_sort:
        return False
    if sort == "value":
        return same_value(left, right)
    if sort in ("tuple", "matrix"):
        return _same_shape(left, right)
    if sort == "set":
        return all(any(same_value(a, b) for b in right) for a in left) and all(
            any(same_value(a, b) for b in left) for a in right
        )
    if sort == "reals":
        return _reals(left) == _reals(right)
    if sort == "quantity":
        return left[1] == right[1] and same_value(left[0], right[0])
    if sort == "equation":
        return _proportional(left, right)
    if sort == "word":
        return left == right
    raise ValueError(f"no meaning of sort {sort!r}")


def same_value(one: str, other: str) -> bool:
    """Equal at three places of every letter."""
    return all(_close(_at(one, place), _at(other, place)) for place in range(len(PLACES)))


def _close(one: Any, other: Any) -> bool:
    with mpmath.workdps(2 * DIGITS):
        return bool(abs(one - other) <= mpmath.mpf(10) ** -DIGITS * max(abs(one), abs(other)))


@lru_cache(maxsize=10_000)
def _at(text: str, place: int) -> Any:
    """The formula at one place. The formulas are ours, so Python may evaluate them."""
    with mpmath.workdps(2 * DIGITS):
        a, b, c, d = PLACES[place]
        names: dict[str, Any] = {
            letter: mpmath.mpf(a + k) / b if k % 2 else mpmath.mpf(c) / (d + k)
            for k, letter in enumerate(LETTERS)
        }
        names |= {"pi": +mpmath.pi, "i": mpmath.mpc(0, 1), "number": mpmath.mpf, "__builtins__": {}}
        names |= {name: getattr(mpmath, name) for name in ("sqrt", "exp", "log", "sin", "cos")}
        return eval(re.sub(r"\d+", r"number('\g<0>')", text), names)


def _same_shape(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and same_value(one, other)
    return len(one) == len(other) and all(map(_same_shape, one, other))


def _reals(pieces: list[tuple[str, str, bool, bool]]) -> Any:
    return sympy.Union(
        *(sympy.Interval(sympy.sympify(low), sympy.sympify(high), a, b) for low, high, a, b in pieces)
    )


def _proportional(one: str, other: str) -> bool:
    """The left sides of ``... = 0`` are multiples of each other."""
    values = [(_at(one, place), _at(other, place)) for place in range(len(PLACES))]
    a, b = values[0]
    return all(_close(a * d, b * c) for c, d in values[1:])
