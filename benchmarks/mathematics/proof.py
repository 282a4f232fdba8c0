"""Do two meanings say the same? Decided by sympy and 60-digit numbers, without the grader under test."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import sympy

from benchmarks.mathematics.rows import Meaning

DIGITS = 60
LETTERS = {name: sympy.Symbol(name, real=True) for name in "abcdkmnprstuvwxyz"}
NAMES = {**LETTERS, "e": sympy.E, "i": sympy.I, "pi": sympy.pi, "oo": sympy.oo}
PLACES = (
    (sympy.Rational(5, 7), sympy.Rational(13, 11)),
    (sympy.Rational(23, 9), sympy.Rational(3, 13)),
    (sympy.Rational(17, 12), sympy.Rational(29, 8)),
)


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
    """Equal at three places of every letter, to 60 digits of the larger of the two."""
    return all(_at(f"({one}) - ({other})", place, (one, other)) == 0 for place in PLACES)


def _expression(text: str) -> Any:
    return sympy.sympify(text, locals=NAMES, rational=True)


def _at(text: str, place: tuple[Any, Any], scale: tuple[str, ...] = ()) -> Any:
    letters = sorted(LETTERS)
    numbers = {
        LETTERS[name]: place[position % 2] + sympy.Rational(position, 19)
        for position, name in enumerate(letters)
    }
    found = sympy.N(_expression(text).subs(numbers), DIGITS * 2, maxn=2000)
    size = max((abs(_at(part, place)) for part in scale), default=sympy.Integer(1))
    return sympy.Integer(0) if abs(found) <= sympy.Float(10) ** -DIGITS * size else found


def _same_shape(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and same_value(one, other)
    return len(one) == len(other) and all(map(_same_shape, one, other))


def _reals(pieces: list[tuple[str, str, bool, bool]]) -> Any:
    return sympy.Union(
        *(sympy.Interval(_expression(low), _expression(high), a, b) for low, high, a, b in pieces)
    )


def _proportional(one: str, other: str) -> bool:
    shares = [_at(one, place) / _at(other, place) for place in PLACES]
    return all(abs(share - shares[0]) < sympy.Float(10) ** -40 for share in shares)
