"""Names and small patterns of tokens that the parser asks for."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from trimtab.rewards.mathematics.expressions import MINUS_ONE, Constant, Expression, Number, Power, Product
from trimtab.rewards.mathematics.tokens import Token

MAX_NESTING = 50
MAX_POSTFIX = 3
"""Factorial signs and powers in a row after one value."""

_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh exp ln log lg abs floor ceil cbrt"
)
FUNCTIONS = frozenset(_NAMES.split())
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
FACTORS = FUNCTIONS | {"frac", "sqrt", "binom", "pi", "infty", "lfloor", "lceil"}
"""Names with which a factor can begin."""
PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|"}
DEGREE = Product((Constant("pi"), Number(Fraction(1, 180))))


def divide(factors: list[Expression], divisor: Expression) -> None:
    """Divides a product in place; a fraction of written numbers stays one number."""
    if not isinstance(divisor, Number) or not divisor.value:
        factors.append(Power(divisor, MINUS_ONE))
    elif isinstance(factors[-1], Number):
        factors[-1] = Number(factors[-1].value / divisor.value)
    else:
        factors.append(Number(1 / divisor.value))


def degree_at(tokens: Sequence[Token], at: int) -> Sequence[Token]:
    """The tokens of a degree sign here (``^\\circ``, ``^{\\circ}``, ``\\degree``), or nothing."""
    here = tokens[at : at + 4]
    if here and here[0].is_name("degree", "circ"):
        return here[:1]
    if len(here) > 1 and here[0].is_sign("^"):
        if here[1].is_name("circ", "degree"):
            return here[:2]
        if (
            len(here) > 3
            and here[1].is_sign("{")
            and here[2].is_name("circ", "degree")
            and here[3].is_sign("}")
        ):
            return here
    return ()


def is_solidus(tokens: Sequence[Token], at: int) -> bool:
    """number / number stands here."""
    three = tokens[at : at + 3]
    return [token.kind for token in three] == ["number", "sign", "number"] and three[1].is_sign("/")
