"""The unit that stands before or behind a number, in tokens."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from trimtab.rewards.mathematics.expressions import Expression, Number, Product
from trimtab.rewards.mathematics.marks import degree_at
from trimtab.rewards.mathematics.tokens import Token, Unreadable, number_of
from trimtab.rewards.mathematics.units import ONE, TABLE, Unit, unit_of
from trimtab.rewards.mathematics.words import NEVER_A_UNIT, SCALES

MAX_UNIT_TOKENS = 12
MAX_NOUNS = 3
_CURRENCIES = ("$", "€", "£", "¥")
_RAISING = {"square": 2, "sq": 2, "cubic": 3}

Scale = Callable[[Expression], Expression]


def leading_currency(tokens: Sequence[Token]) -> tuple[Sequence[Token], Unit | None]:
    """The tokens without a currency sign at the front (a minus may come before it), and its unit."""
    for at in (0, 1):
        if len(tokens) > at + 1 and tokens[at].is_sign(*_CURRENCIES) and (at == 0 or tokens[0].is_sign("-")):
            return [*tokens[:at], *tokens[at + 1 :]], TABLE[tokens[at].text]
    return tokens, None


def trailing_unit(tokens: Sequence[Token], currency: Unit | None = None) -> tuple[Scale | None, Unit | None]:
    """What multiplies the number (``million``) and the unit, from all that follows it.

    Raises Unreadable when not all of it is a unit: words such as "or", "less", "wrong" are none.
    """
    scale: Scale | None = None
    word = tokens[0].text.lower() if tokens and tokens[0].kind == "word" else ""
    if word in SCALES:
        tokens, scale = tokens[1:], _times(SCALES[word])
    if not tokens:
        return scale, currency
    if len(tokens) > MAX_UNIT_TOKENS:
        raise Unreadable("too much after the number")
    unit = _UnitReader(tokens).all()
    if currency is not None and unit.powers not in (currency.powers, ()):
        raise Unreadable("a currency and another unit")
    return scale, currency or (unit if unit != ONE else None)


def _times(factor: int) -> Scale:
    return lambda value: Product((value, Number(Fraction(factor))))


class _UnitReader:
    """``cm``, ``square cm``, ``cm^2``, ``km/h``, ``miles per hour``, ``^\\circ C``, ``%``, ``apples``."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.nouns = 0

    def all(self) -> Unit:
        unit = self._simple()
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.is_sign("/") or self._word() == "per":
                self.at += 1
                unit = unit * self._simple() ** -1
            elif token.is_sign("*", "-"):
                self.at += 1
                unit = unit * self._simple()
            else:
                unit = unit * self._simple()
        return unit

    def _word(self) -> str:
        """The next token as a word; empty when it is none."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        is_word = token is not None and (token.kind == "word" or (token.kind == "letter" and token.textual))
        return token.text if token is not None and is_word else ""

    def _simple(self) -> Unit:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None:
            raise Unreadable("a unit that breaks off")
        if token.is_sign("%", *_CURRENCIES):
            self.at += 1
            return TABLE[token.text]
        if degree := degree_at(self.tokens, self.at):
            self.at += len(degree)
            return self._temperature()
        word = self._word()
        if not word and token.kind == "letter" and self.at:  # the h of km/h
            word = token.text
        if not word or word.lower() in NEVER_A_UNIT:
            raise Unreadable(f"{token.text!r} after the number")
        self.at += 1
        if word.lower() in _RAISING:
            return self._simple() ** _RAISING[word.lower()]
        unit = unit_of(word)
        self.nouns += unit.name.startswith("noun")
        if self.nouns > MAX_NOUNS:
            raise Unreadable("more words after the number than a unit has")
        if unit.name == "degree":
            return self._temperature()
        return unit ** self._exponent()

    def _exponent(self) -> int:
        raised = self.tokens[self.at : self.at + 4]
        if not raised or not raised[0].is_sign("^"):
            word = self._word().lower()
            if word in ("squared", "cubed"):
                self.at += 1
                return 2 if word == "squared" else 3
            return 1
        inside = [token for token in raised[1:] if not token.is_sign("{", "}")][:2]
        negative = bool(inside) and inside[0].is_sign("-")
        digits = inside[1:2] if negative else inside[:1]
        if not digits or digits[0].kind != "number" or number_of(digits[0]) not in (1, 2, 3):
            raise Unreadable("a power of a unit other than 1, 2, 3")
        braces = 2 if raised[1].is_sign("{") else 0
        self.at += 2 + negative + braces
        return -int(number_of(digits[0])) if negative else int(number_of(digits[0]))

    def _temperature(self) -> Unit:
        """Degrees of an angle, or with C, F, Celsius, Fahrenheit of temperature."""
        here = self.tokens[self.at].text.lower() if self.at < len(self.tokens) else ""
        kinds = {"c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit"}
        if here in kinds:
            self.at += 1
            return Unit(Fraction(1), ((kinds[here], 1),))
        return TABLE["degree"]
