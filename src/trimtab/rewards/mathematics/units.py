"""Units as powers of base units with exact scales: 1 km/h = 5/18 m/s.

A plain noun after a number is a unit of its own: 13 apples is not 13 oranges.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

_LENGTH = {
    **dict.fromkeys(("mm", "millimeter", "millimetre"), Fraction(1, 1000)),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), Fraction(1, 100)),
    **dict.fromkeys(("m", "meter", "metre"), Fraction(1)),
    **dict.fromkeys(("km", "kilometer", "kilometre"), Fraction(1000)),
    **dict.fromkeys(("in", "inch", "inches"), Fraction(254, 10_000)),
    **dict.fromkeys(("ft", "foot", "feet"), Fraction(3048, 10_000)),
    **dict.fromkeys(("yd", "yard"), Fraction(9144, 10_000)),
    **dict.fromkeys(("mi", "mile"), Fraction(1_609_344, 1000)),
}
_TIME = {
    **dict.fromkeys(("s", "sec", "second"), Fraction(1)),
    **dict.fromkeys(("min", "minute"), Fraction(60)),
    **dict.fromkeys(("h", "hr", "hour"), Fraction(3600)),
    **dict.fromkeys(("day",), Fraction(86_400)),
    **dict.fromkeys(("week",), Fraction(604_800)),
}
_MASS = {
    **dict.fromkeys(("mg", "milligram"), Fraction(1, 10**6)),
    **dict.fromkeys(("g", "gram"), Fraction(1, 1000)),
    **dict.fromkeys(("kg", "kilogram"), Fraction(1)),
    **dict.fromkeys(("lb", "lbs", "pound"), Fraction(45_359_237, 10**8)),
    **dict.fromkeys(("oz", "ounce"), Fraction(45_359_237, 16 * 10**8)),
}
_VOLUME = {
    **dict.fromkeys(("ml", "mL", "milliliter", "millilitre"), Fraction(1, 10**6)),
    **dict.fromkeys(("l", "L", "liter", "litre"), Fraction(1, 1000)),
}
_MONEY = {**dict.fromkeys(("$", "dollar"), Fraction(1)), **dict.fromkeys(("cent", "¢"), Fraction(1, 100))}
_OTHERS = {
    **dict.fromkeys(("degree", "deg"), "degree"),
    **dict.fromkeys(("€", "euro"), "euro"),
    **dict.fromkeys(("£",), "sterling"),
    **dict.fromkeys(("¥", "yen"), "yen"),
    **dict.fromkeys(("%", "percent", "pct", "percentage"), "percent"),
}
NO_UNIT = frozenset({"unit", "radian", "rad"})
"""Said of a bare number: it stays one."""


@dataclass(frozen=True, slots=True)
class Unit:
    """``scale`` times a product of base units, such as (("length", 1), ("time", -1))."""

    scale: Fraction
    powers: tuple[tuple[str, int], ...]

    def __mul__(self, other: Unit) -> Unit:
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + power
        return Unit(self.scale * other.scale, _sorted(powers))

    def __pow__(self, exponent: int) -> Unit:
        return Unit(self.scale**exponent, tuple((name, power * exponent) for name, power in self.powers))

    @property
    def name(self) -> str:
        """The name of a simple unit such as ``percent``; empty for products."""
        return self.powers[0][0] if len(self.powers) == 1 and self.powers[0][1] == 1 else ""


def _sorted(powers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, power) for name, power in powers.items() if power))


ONE = Unit(Fraction(1), ())
_SPEED = Unit(Fraction(1), (("length", 1), ("time", -1)))
TABLE: dict[str, Unit] = {
    **{name: Unit(scale, (("length", 1),)) for name, scale in _LENGTH.items()},
    **{name: Unit(scale, (("time", 1),)) for name, scale in _TIME.items()},
    **{name: Unit(scale, (("mass", 1),)) for name, scale in _MASS.items()},
    **{name: Unit(scale, (("length", 3),)) for name, scale in _VOLUME.items()},
    **{name: Unit(scale, (("money", 1),)) for name, scale in _MONEY.items()},
    **{name: Unit(Fraction(1), ((kind, 1),)) for name, kind in _OTHERS.items()},
    "mph": Unit(Fraction(1_609_344, 3_600_000), _SPEED.powers),
    "kph": Unit(Fraction(1000, 3600), _SPEED.powers),
    **dict.fromkeys(NO_UNIT, ONE),
}
LETTER_UNITS = frozenset({"m", "g", "s", "h", "L", "l"})
"""Single letters that are units where the other side has one, else variables."""
UNIT_WORDS = frozenset(
    name for name in TABLE if len(name) > 1 and name not in ("in", "percent", "mi", "rad", "deg")
) | {"hrs", "mins", "secs", "yds", "kgs", "percent", "per", "sq", "pct"}
"""Units that are known without ``\\text`` where they follow a number: ``5cm`` is no product."""

_PLURAL = {"hrs": "h", "mins": "min", "secs": "s", "yds": "yd", "kgs": "kg", "feet": "ft", "people": "person"}


def unit_of(word: str) -> Unit:
    """The unit of one word, singular or plural; an unknown noun is a unit of its own."""
    low = word.lower()
    known = TABLE.get(word) or TABLE.get(low) or TABLE.get(_PLURAL.get(low, low))
    if known is not None:
        return known
    if low.endswith("s") and low[:-1] in TABLE:
        return TABLE[low[:-1]]
    single = _PLURAL.get(low, low)
    single = single[:-1] if single.endswith("s") and not single.endswith("ss") and len(single) > 3 else single
    return Unit(Fraction(1), ((f"noun {single}", 1),))
