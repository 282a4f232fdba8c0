"""What an answer can be, once read: a value, words, several values, a matrix, a set of reals, a relation."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.rewards.mathematics.expressions import Expression
from trimtab.rewards.mathematics.units import Unit


@dataclass(frozen=True, slots=True)
class Value:
    """One expression, with the unit that stands behind it."""

    expression: Expression
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Words in lower case. ``marked``: they stood in ``\\\\text{...}``, or are a phrase that is known."""

    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Several answers. ``brackets``: ``{}`` a set, empty a bare list, else as written: ``()``, ``[]``."""

    brackets: str
    items: tuple[Form, ...]

    @property
    def ordered(self) -> bool:
        return self.brackets not in ("", "{}")


@dataclass(frozen=True, slots=True)
class Ratio:
    """``3:4``"""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of cells."""

    rows: tuple[tuple[Form, ...], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval; an end may be infinite, then it is open."""

    low: Expression
    high: Expression
    low_open: bool
    high_open: bool


@dataclass(frozen=True, slots=True)
class Reals:
    """A union of intervals and points on the line, as written: not yet sorted or joined."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """``x = 5``, ``f(x) = x^2``, ``(x, y) = (1, 2)``, ``Area = 12``."""

    name: str
    form: Form


@dataclass(frozen=True, slots=True)
class Equation:
    """``difference = 0``"""

    difference: Expression


@dataclass(frozen=True, slots=True)
class Inequality:
    """``difference < 0``, or ``<= 0`` where not strict."""

    difference: Expression
    strict: bool


Form = Value | Words | Items | Ratio | Matrix | Reals | Named | Equation | Inequality
