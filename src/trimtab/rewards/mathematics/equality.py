"""Are two expressions equal? Exact arithmetic where it reaches, else many digits at several places.

Without letters: rational numbers are compared exactly; of others the difference is computed twice, the second
time with twice the digits. A difference that is only rounding shrinks with the digits, a true one stays. No
number is close enough: 1/2^99 is not 1/2^98, and 0.3333 is not 1/3.

With letters: the same at several places, positive, negative and whole ones, drawn from the two expressions
themselves, so that a grade is repeatable. Places where either side has no real value are left out:
sqrt(1/n) = 1/sqrt(n), and (-1)^n = cos(n pi).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

from trimtab.rewards.mathematics.evaluation import Budget, Evaluator, TooLarge, Undefined
from trimtab.rewards.mathematics.expressions import (
    INFINITY,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Sum,
    constants,
    is_infinite,
    letters,
)

BITS = 200
"""Binary digits of the first computation, about 60 decimals; the second has twice as many."""
NEEDED_PLACES = 4
"""At fewer common places nothing is decided."""

ENOUGH_PLACES = 7
"""After so many that agree the two are equal."""
_ORDER = "near turned below whole far mixed whole near near whole whole whole near"
_KINDS = tuple(_ORDER.split())

Places = Mapping[str, Fraction]
Pair = Callable[[Evaluator], tuple[Any, Any]]


class Equality:
    """Compares expressions within one budget of work. Every method raises TooLarge when it is spent."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()

    def equal(self, one: Expression, other: Expression) -> bool | None:
        """True or False; None where these rules cannot decide."""
        if one == other:
            return True
        if is_infinite(one) or is_infinite(other):
            return is_infinite(one) == is_infinite(other)
        if INFINITY.name in constants(one) | constants(other):
            return None
        names = letters(one) | letters(other)
        agreed, too_large = 0, False
        for place in _places(one, other) if names else [{}]:
            try:
                verdict = self._same(one, other, place)
            except TooLarge:
                if self.budget.left < 0:
                    raise
                verdict, too_large = None, True
            if verdict is False:
                return False
            agreed += verdict is True
            if agreed == ENOUGH_PLACES:
                break
        if agreed >= (NEEDED_PLACES if names else 1):
            return True
        return self.folded(one) == self.folded(other) if too_large else None

    def has_value(self, one: Expression) -> bool:
        """Can its value be computed at enough places? Then whatever is undefined there does not equal it."""
        return not is_infinite(one) and self.equal(one, Sum((one, Number(Fraction(1))))) is False

    def proportional(self, one: Expression, other: Expression) -> int | None:
        """The sign of c where one = c * other for a constant c; 0 where there is none; None if unknown."""
        if one == other:
            return 1
        if not letters(one) | letters(other) or INFINITY.name in constants(one) | constants(other):
            return None
        places = list(_places(one, other))
        signs = [(self._sign(one, place), self._sign(other, place)) for place in places]
        start = next((k for k, pair in enumerate(signs) if None not in pair and all(pair)), None)
        if start is None:
            return 0
        agreed = 0
        for place in places[:start] + places[start + 1 :]:
            verdict = self._vanishes(_crossed(one, other, places[start], place), _is_complex(one, other))
            if verdict is False:
                return 0
            agreed += verdict is True
        first, second = signs[start]
        assert first is not None
        assert second is not None
        return first * second if agreed >= NEEDED_PLACES - 1 else None

    def compare(self, one: Expression, other: Expression) -> int | None:
        """-1, 0, 1 as one is less than, equal to, greater than other; None unless both are real constants."""
        ends = (is_infinite(one), is_infinite(other))
        if any(ends):
            return (ends[0] > ends[1]) - (ends[0] < ends[1])
        if letters(one) | letters(other) or _is_complex(one, other):
            return None
        same = self.equal(one, other)
        return (
            0
            if same
            else None
            if same is None
            else self._sign(Sum((one, Product((Number(Fraction(-1)), other)))), {})
        )

    def within(self, answer: Expression, gold: Expression, tolerance: float) -> bool:
        """|answer - gold| <= tolerance * max(1, |gold|), for real constants; False for anything else."""
        try:
            work = Evaluator(BITS, self.budget)
            a, b = work.value(answer, {}), work.value(gold, {})
            return bool(abs(work.difference(a, b)) <= Fraction(tolerance) * max(1, abs(b)))
        except (Undefined, TooLarge, KeyError, TypeError):
            return False

    def size_of(self, one: Expression) -> float | None:
        """The constant as a float, for coarse questions; None when it is none."""
        try:
            return float(Evaluator(BITS, self.budget).value(one, {}))
        except (Undefined, TooLarge, KeyError, TypeError, OverflowError):
            return None

    def folded(self, node: Expression) -> Expression:
        """The tree with every part that is a rational number within the limits replaced by it."""
        match node:
            case Sum(terms):
                node = Sum(tuple(map(self.folded, terms)))
            case Product(factors):
                node = Product(tuple(map(self.folded, factors)))
            case Power(base, exponent):
                node = Power(self.folded(base), self.folded(exponent))
            case Call(name, arguments):
                node = Call(name, tuple(map(self.folded, arguments)))
            case _:
                return node
        try:
            value = Evaluator(BITS, self.budget).value(node, {})
        except (Undefined, TooLarge, KeyError):
            return node
        return Number(value) if isinstance(value, Fraction) else node

    def _same(self, one: Expression, other: Expression, place: Places) -> bool | None:
        return self._vanishes(
            lambda work: (work.value(one, place), work.value(other, place)), _is_complex(one, other)
        )

    def _vanishes(self, pair: Pair, complex_numbers: bool) -> bool | None:
        """Are the two values of ``pair`` the same? None where either is undefined."""
        try:
            work = Evaluator(BITS, self.budget, complex_numbers)
            one, other = pair(work)
            if isinstance(one, Fraction) and isinstance(other, Fraction):
                return one == other
            work.difference(one, other)
            bits = BITS + work.seen
            first, second = (self._difference(pair, many, complex_numbers) for many in (bits, 2 * bits))
        except Undefined:
            return None
        if first == 0:
            return bool(second <= work.mp.mpf(2) ** (work.seen - bits - bits // 2))
        return bool(second <= first * work.mp.mpf(2) ** (-(bits // 2)))

    def _difference(self, pair: Pair, bits: int, complex_numbers: bool) -> Any:
        work = Evaluator(bits, self.budget, complex_numbers)
        return abs(work.difference(*pair(work)))

    def _sign(self, one: Expression, place: Places) -> int | None:
        """The sign of a real value, 1 for a complex one that is not zero; None where there is no value."""
        work = Evaluator(2 * BITS, self.budget, _is_complex(one, one))
        try:
            value = work.value(one, place)
        except Undefined:
            return None
        if isinstance(value, work.mp.mpc):
            return int(bool(value))
        return (value > 0) - (value < 0)


def _is_complex(one: Expression, other: Expression) -> bool:
    return "i" in constants(one) | constants(other)


def _crossed(one: Expression, other: Expression, first: Places, place: Places) -> Pair:
    """one(place) * other(first) and one(first) * other(place): the same for all places if proportional."""

    def pair(work: Evaluator) -> tuple[Any, Any]:
        return (
            work.product(work.value(one, place), work.value(other, first)),
            work.product(work.value(one, first), work.value(other, place)),
        )

    return pair


def _places(one: Expression, other: Expression) -> Iterator[Places]:
    """Places of fractions (below 1, above 1, negative, of both signs) and of whole numbers.

    A turned place has the numbers of the one before it, each at the next letter: |x - y| meets x < y and
    x > y. The whole numbers of a letter follow each other: (-1)^n meets odd and even ones.
    """
    names = sorted(letters(one) | letters(other))
    random = Random(f"{one!r} {other!r}")
    numbers = [Fraction(random.randrange(2, 9)) for _ in names]
    whole = numbers
    for kind in _KINDS:
        low = random.randrange(31, 97)
        if kind == "turned":
            numbers = numbers[1:] + numbers[:1]
        elif kind == "whole":
            whole = [number + 1 + at for at, number in enumerate(whole)]
            numbers = whole
        else:
            ends = (low + 1, 3 * low) if kind == "far" else (1, low)
            numbers = [Fraction(random.randrange(*ends), low) for _ in names]
        if kind == "below" or kind == "mixed":
            numbers = [-x if kind == "below" or at % 2 == 0 else x for at, x in enumerate(numbers)]
        yield dict(zip(names, numbers, strict=True))
