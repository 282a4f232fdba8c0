"""Tokens, and the number that a token is."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

LARGEST_EXPONENT = 1000
"""1e1000 is the largest power of ten that is read."""


class Unreadable(Exception):  # noqa: N818  (not a fault of the program: an answer may be anything)
    """The text is not an answer that these rules can read; the message says where reading stopped."""


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: number, letter, word, join, name, sign, begin, end, row. ``textual``: inside ``\\text``."""

    kind: str
    text: str
    spaced: bool = False
    textual: bool = False

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def is_name(self, *names: str) -> bool:
        return self.kind == "name" and self.text in names


def number_of(token: Token) -> Fraction:
    """The exact value of a number token: ``12``, ``.5``, ``1.5e3``, ``0.1(6)``."""
    text = token.text
    if "(" in text:
        start, _, cycle = text[:-1].partition("(")
        whole, _, places = start.partition(".")
        once = Fraction(int((whole or "0") + places), 10 ** len(places))
        return once + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(places))
    digits, _, exponent = text.lower().partition("e")
    power = int(exponent or 0)
    if abs(power) > LARGEST_EXPONENT:
        raise Unreadable(f"the number {text[:30]}")
    whole, _, places = digits.partition(".")
    return Fraction(int(f"{whole}{places}"), 10 ** len(places)) * Fraction(10) ** power
