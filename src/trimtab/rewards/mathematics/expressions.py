"""Expressions as trees of frozen nodes: exact numbers, letters, and a short list of functions."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Constant:
    """``pi``, ``e``, ``i`` or ``infinity``."""

    name: str


@dataclass(frozen=True, slots=True)
class Letter:
    """A variable by its whole name: ``x``, ``x_1``, ``alpha``, ``x'``."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """All terms added."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """All factors multiplied; a quotient has a factor to the power -1."""

    factors: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Power:
    """``base ^ exponent``"""

    base: Expression
    exponent: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A function of FUNCTIONS applied to its arguments; ``root(degree, x)``, ``log(base, x)``."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """``+`` or ``-`` before ``term``: plus first where ``sign`` is 1 (``\\pm``), minus first where -1."""

    sign: int
    term: Expression


Expression = Number | Constant | Letter | Sum | Product | Power | Call | PlusMinus

ONE_ARGUMENT = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "arccot",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "ln",
        "abs",
        "floor",
        "ceil",
        "factorial",
        "sqrt",
    ]
)
TWO_ARGUMENTS = frozenset({"root", "log", "binom"})
"""``log`` always has a base here; where none is written it is the letter of UNKNOWN_BASE."""

UNKNOWN_BASE = Letter("base of log")
"""``\\log x`` means base 10 to some and e to others: it equals neither, but log rules hold."""

INFINITY = Constant("infinity")
MINUS_ONE = Number(Fraction(-1))


def number(value: int | Fraction) -> Number:
    """A node of this value."""
    return Number(Fraction(value))


def negative(term: Expression) -> Expression:
    """``-term``"""
    return Number(-term.value) if isinstance(term, Number) else Product((MINUS_ONE, term))


def quotient(top: Expression, low: Expression) -> Expression:
    """``top / low``; a fraction of whole numbers stays one number."""
    if isinstance(top, Number) and isinstance(low, Number) and low.value:
        return Number(top.value / low.value)
    return Product((top, Power(low, MINUS_ONE)))


def children(node: Expression) -> tuple[Expression, ...]:
    """The nodes right below."""
    match node:
        case Sum(terms):
            return terms
        case Product(factors):
            return factors
        case Power(base, exponent):
            return (base, exponent)
        case Call(_, arguments):
            return arguments
        case PlusMinus(_, term):
            return (term,)
        case _:
            return ()


def every(node: Expression) -> Iterator[Expression]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def letters(node: Expression) -> set[str]:
    """The names of all letters."""
    return {part.name for part in every(node) if isinstance(part, Letter)}


def constants(node: Expression) -> set[str]:
    """The names of all constants."""
    return {part.name for part in every(node) if isinstance(part, Constant)}


def is_infinite(node: Expression) -> int:
    """1 for infinity, -1 for minus infinity, 0 for anything else."""
    if node == INFINITY:
        return 1
    return -1 if node == Product((MINUS_ONE, INFINITY)) else 0


def signed(node: Expression, way: int) -> Expression:
    """The tree with every plus-minus decided: ``way`` is 1 for the upper sign, -1 for the lower."""
    match node:
        case PlusMinus(sign, term):
            inner = signed(term, way)
            return inner if sign * way > 0 else negative(inner)
        case Sum(terms):
            return Sum(tuple(signed(term, way) for term in terms))
        case Product(factors):
            return Product(tuple(signed(factor, way) for factor in factors))
        case Power(base, exponent):
            return Power(signed(base, way), signed(exponent, way))
        case Call(name, arguments):
            return Call(name, tuple(signed(argument, way) for argument in arguments))
        case _:
            return node
