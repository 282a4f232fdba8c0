"""The value of an expression at one place: exact where it is rational, else to as many bits as asked for.

Sizes are bounded before anything is computed, and the work is counted (not timed, so that a grade does not
depend on the machine): an expression that asks for more raises TooLarge.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from mpmath.ctx_mp import MPContext
from mpmath.libmp import ComplexResult

from trimtab.rewards.mathematics.expressions import (
    Call,
    Constant,
    Expression,
    Letter,
    Number,
    Power,
    Product,
    Sum,
)

EXACT_BITS = 40_000
"""A rational number may have this many bits, about 12,000 digits: 2004! has 19,000."""
FLOAT_BITS = 3_000
"""Where roots, pi, e or functions come in, everything lies within 2^-3000 and 2^3000."""
LARGEST_FACTORIAL = 3_000
MAX_WORK = 20_000.0
"""One unit is about one function value of 60 digits; all of it takes less than half a second."""

_ROOT_BITS = 64
_contexts = threading.local()


class TooLarge(Exception):  # noqa: N818
    """The expression asks for numbers or work beyond the limits above."""


class Undefined(Exception):  # noqa: N818
    """No real value here: a division by zero, the root or logarithm of a negative number, infinity."""


class Budget:
    """The work that one comparison of two answers may still do."""

    def __init__(self, units: float = MAX_WORK) -> None:
        self.left = units

    def spend(self, units: float) -> None:
        self.left -= units
        if self.left < 0:
            raise TooLarge("too much work")


class Evaluator:
    """Evaluates trees with ``bits`` of precision. ``complex_numbers`` allows i and roots of negative numbers.

    ``seen`` is the largest exponent of two that has come up: at 2^-seen two values may differ.
    """

    def __init__(self, bits: int, budget: Budget, complex_numbers: bool = False) -> None:
        if not hasattr(_contexts, "mp"):
            _contexts.mp = MPContext()
        self.mp: Any = _contexts.mp
        self.bits = bits
        self.budget = budget
        self.complex_numbers = complex_numbers
        self.seen = 0

    def value(self, node: Expression, places: Mapping[str, Fraction]) -> Any:
        """A Fraction where the value is rational by its form, else an mpf or mpc.

        Raises TooLarge or Undefined.
        """
        self.mp.prec = self.bits
        try:
            return self._value(node, places)
        except (ZeroDivisionError, ComplexResult, ValueError) as fault:
            raise Undefined(str(fault)) from None
        except (OverflowError, MemoryError) as fault:
            raise TooLarge(str(fault)) from None

    def _value(self, node: Expression, places: Mapping[str, Fraction]) -> Any:
        match node:
            case Number(value):
                return self._kept(value)
            case Letter(name):
                return places[name]
            case Constant(name):
                return self._constant(name)
            case Sum(terms):
                total: Any = Fraction(0)
                for term in terms:
                    total = self._kept(self._joined(total, self._value(term, places), "+"))
                return total
            case Product(factors):
                total = Fraction(1)
                for factor in factors:
                    total = self._kept(self._joined(total, self._value(factor, places), "*"))
                return total
            case Power(base, exponent):
                return self._kept(self._power(self._value(base, places), self._value(exponent, places)))
            case Call(name, arguments):
                return self._kept(self._call(name, [self._value(part, places) for part in arguments]))
            case _:
                raise Undefined("a plus-minus sign")

    def _constant(self, name: str) -> Any:
        if name == "infinity":
            raise Undefined("infinity")
        if name == "i":
            if not self.complex_numbers:
                raise Undefined("i")
            return self.mp.mpc(0, 1)
        self._count(1)
        return +self.mp.pi if name == "pi" else +self.mp.e

    def _count(self, units: float) -> None:
        self.budget.spend(units * (self.bits / 200) ** 1.5)

    def _kept(self, value: Any) -> Any:
        """The value, when it is within the limits."""
        if isinstance(value, Fraction):
            size = max(value.numerator.bit_length(), value.denominator.bit_length())
            self.budget.spend(0.1 + size / 1000)
            if size > EXACT_BITS:
                raise TooLarge("a rational number of too many digits")
            return value
        if not self.mp.isfinite(value):
            raise Undefined("not finite")
        if isinstance(value, self.mp.mpc) and not self.complex_numbers:
            raise Undefined("not real")
        if value:
            size = abs(int(self.mp.mag(value)))
            if size > FLOAT_BITS:
                raise TooLarge("a number of too many digits")
            self.seen = max(self.seen, min(size, self.bits))
        return value

    def difference(self, one: Any, other: Any) -> Any:
        """one - other, exact where both are rational."""
        return self._joined(one, -other, "+")

    def product(self, one: Any, other: Any) -> Any:
        """one * other, exact where both are rational."""
        return self._joined(one, other, "*")

    def _real(self, value: Any) -> Any:
        """The value as a floating-point number of this precision."""
        if not isinstance(value, Fraction):
            return value
        size = max(value.numerator.bit_length(), value.denominator.bit_length())
        if size > FLOAT_BITS:
            raise TooLarge("a rational number of too many digits beside an irrational one")
        self.seen = max(self.seen, size)
        return self.mp.mpf(value.numerator) / value.denominator

    def _joined(self, one: Any, other: Any, how: str) -> Any:
        if not (isinstance(one, Fraction) and isinstance(other, Fraction)):
            self._count(0.2)
            if how == "*" and (one == 0 or other == 0):
                return Fraction(0)
            one, other = self._real(one), self._real(other)
        return one + other if how == "+" else one * other

    def _power(self, base: Any, exponent: Any) -> Any:
        if isinstance(exponent, Fraction) and exponent.denominator == 1:
            return self._whole_power(base, exponent.numerator)
        if isinstance(base, Fraction) and isinstance(exponent, Fraction) and base >= 0:
            root = self._exact_root(base, exponent.denominator)
            if root is not None:
                return self._whole_power(root, exponent.numerator)
        base, exponent = self._real(base), self._real(exponent)
        if not base:
            if self.mp.re(exponent) > 0:
                return Fraction(0)
            raise Undefined("a power of zero")
        if not self.complex_numbers and base < 0:
            raise Undefined("a fractional power of a negative number")
        self._count(2)
        logarithm = self.mp.log(base) * exponent
        if abs(logarithm) > FLOAT_BITS:
            raise TooLarge("a power of too many digits")
        return self.mp.exp(logarithm)

    def _whole_power(self, base: Any, exponent: int) -> Any:
        if isinstance(base, Fraction):
            if base in (0, 1, -1) and exponent >= 0:
                return base if exponent % 2 else base * base if exponent else Fraction(1)
            size = max(base.numerator.bit_length(), base.denominator.bit_length())
            if size * abs(exponent) > EXACT_BITS + size:
                raise TooLarge("a power of too many digits")
            return base**exponent
        if (base and abs(int(self.mp.mag(base)) * exponent) > 2 * FLOAT_BITS) or abs(exponent) > EXACT_BITS:
            raise TooLarge("a power of too many digits")
        self._count(0.5)
        return base**exponent

    def _exact_root(self, base: Fraction, degree: int) -> Fraction | None:
        """The rational root, if there is one and the number is not negative (odd degrees apart)."""
        if degree > _ROOT_BITS or (base < 0 and (degree % 2 == 0 or self.complex_numbers)):
            return None
        top, low = _whole_root(abs(base.numerator), degree), _whole_root(base.denominator, degree)
        if top is None or low is None:
            return None
        return Fraction(top if base >= 0 else -top, low)

    def _call(self, name: str, arguments: list[Any]) -> Any:
        if name in ("factorial", "binom"):
            return self._counting(name, arguments)
        first = arguments[-1]
        if name == "abs":
            return abs(first)
        if name in ("floor", "ceil"):
            return self._rounded(name, first)
        if name in ("sqrt", "root"):
            return self._root(first, arguments[0] if name == "root" else Fraction(2))
        self._count(4)
        if name == "log":
            if arguments[0] == 1:
                raise Undefined("a logarithm to base 1")
            return self._logarithm(first) / self._logarithm(arguments[0])
        if name == "ln":
            return self._logarithm(first)
        x = self._real(first)
        if name == "exp" and abs(x) > FLOAT_BITS:
            raise TooLarge("a power of too many digits")
        if name in ("arcsin", "arccos") and not self.complex_numbers and abs(x) > 1:
            raise Undefined(f"{name} beyond 1")
        return getattr(self.mp, _NAMES.get(name, name))(x)

    def _logarithm(self, value: Any) -> Any:
        if not value or (not self.complex_numbers and value < 0):
            raise Undefined("the logarithm of a number that is not positive")
        return self.mp.ln(self._real(value))

    def _root(self, value: Any, degree: Any) -> Any:
        """The root, real for odd degrees of negative numbers; exact where it is rational."""
        if not isinstance(degree, Fraction) or degree.denominator != 1 or degree < 2:
            return self._power(value, 1 / degree if isinstance(degree, Fraction) else 1 / self._real(degree))
        if isinstance(value, Fraction) and (exact := self._exact_root(value, degree.numerator)) is not None:
            return exact
        odd_of_negative = degree % 2 == 1 and not isinstance(value, self.mp.mpc) and value < 0
        if odd_of_negative:
            return -self._power(-value, 1 / degree)
        return self._power(value, 1 / degree)

    def _counting(self, name: str, arguments: list[Any]) -> Fraction:
        for value in arguments:
            if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
                raise Undefined(f"{name} of what is no natural number")
            if value > LARGEST_FACTORIAL:
                raise TooLarge(f"{name} of {value}")
        self._count(2)
        if name == "binom":
            return Fraction(math.comb(arguments[0].numerator, arguments[1].numerator))
        return Fraction(math.factorial(arguments[0].numerator))

    def _rounded(self, name: str, value: Any) -> Fraction:
        if isinstance(value, Fraction):
            return Fraction(math.floor(value) if name == "floor" else math.ceil(value))
        if isinstance(value, self.mp.mpc):
            raise Undefined("rounding of a complex number")
        rounded = int(self.mp.nint(value))
        if abs(value - rounded) < self.mp.mpf(2) ** (-self.bits // 2):
            return Fraction(rounded)
        return Fraction(int(self.mp.floor(value) if name == "floor" else self.mp.ceil(value)))


_NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
}


def _whole_root(value: int, degree: int) -> int | None:
    """The exact root of a natural number; None when there is none."""
    if value < 2:
        return value
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low if low**degree == value else None
