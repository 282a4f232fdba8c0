"""Plain numbers in text, read exactly: integers, decimals, fractions, thousands separators.

Nothing is evaluated: a text is a number only when all of it matches one of the patterns below.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_NUMBER = 200
"""Characters; a longer text is not a plain number."""
LARGEST_EXPONENT = 400
"""1e400 is the largest power of ten that is read, so that no text can ask for endless digits."""

_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2012\ufe63\uff0d", "-"),
        **dict.fromkeys("\uff0b\ufe62", "+"),
        **dict.fromkeys("\u2044\u2215\uff0f", "/"),
        **dict.fromkeys("\u00a0\u2007\u2009\u202f", "\u202f"),
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
        "\uff0e": ".",
        "\uff0c": ",",
    }
)
"""Signs that mean the same. Not the Unicode compatibility forms: they would read 10² as 102."""

_INTEGER = r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\u202f\d{3})+|\d+"
_DECIMAL = re.compile(rf"([+-]?)\s*(?:({_INTEGER})(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d{{1,4}}))?", re.ASCII)
_FRACTION = re.compile(rf"([+-]?)\s*({_INTEGER})\s*/\s*([+-]?)({_INTEGER})", re.ASCII)


def parse_number(text: str) -> Fraction | None:
    """The number that this whole text is, exactly; None when it is anything else.

    ``-3``, the same with a Unicode minus, ``1,000``, ``13.``, ``.5``, ``1e3``, ``3/4``, ``$18`` are numbers;
    ``1/0``, ``10²``, ``50%``, ``2+2``, ``12,34`` and ``41 or 42`` are not.
    """
    if len(text) > LONGEST_NUMBER:
        return None
    text = text.translate(_SAME).strip().replace("\\$", "$")
    text = re.sub(r"^([+-]?)\s*\$\s*", r"\1", text)
    if match := _FRACTION.fullmatch(text):
        sign, top, below_sign, below = match.groups()
        if _digits(below) == 0:
            return None
        value = Fraction(_digits(top), _digits(below))
        return -value if (sign == "-") != (below_sign == "-") else value
    if match := _DECIMAL.fullmatch(text):
        sign, whole, part, bare_part, exponent = match.groups()
        decimals = part or bare_part or ""
        power = int(exponent or 0)
        if abs(power) > LARGEST_EXPONENT:
            return None
        value = (
            Fraction(int(f"{_digits(whole or '0')}{decimals}"), 10 ** len(decimals)) * Fraction(10) ** power
        )
        return -value if sign == "-" else value
    return None


def _digits(text: str) -> int:
    return int(text.replace(",", "").replace("\u202f", ""))
