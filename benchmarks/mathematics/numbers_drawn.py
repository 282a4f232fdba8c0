"""Drawn numbers: whole ones, fractions, radicals, units, percent. Each can be spelled and perturbed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from benchmarks.mathematics import spelling
from benchmarks.mathematics.rows import Meaning


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer or a finite decimal."""

    value: Fraction

    @classmethod
    def draw(cls, rng: Random) -> Whole:
        size = rng.choice([10, 100, 1000, 10**5, 10**9, 10**20])
        shift = rng.choice([1, 1, 1, 10, 100, 1000])
        return cls(Fraction(rng.randint(-size, size), shift))

    def meaning(self) -> Meaning:
        return {"value": str(self.value)}

    def spell(self, rng: Random) -> str:
        if self.value.denominator == 1:
            number = self.value.numerator
            forms = [spelling.integer(rng, number), spelling.integer(rng, number), str(number)]
            if number and number % 1000 == 0:
                forms.append(rf"{number // 1000} \times 10^{{3}}")
            return rng.choice(forms)
        text = spelling.decimal(self.value) or str(self.value)
        return rng.choice([text, text + "0", text.replace("0.", ".", 1) if text.startswith("0.") else text])

    def perturb(self, rng: Random) -> Whole:
        step = Fraction(1, self.value.denominator)
        near = [self.value + step, self.value - step, -self.value, self.value * 10, self.value / 10]
        digits = list(str(abs(self.value.numerator)))
        rng.shuffle(digits)
        near.append(Fraction(int("".join(digits)), self.value.denominator))
        return Whole(rng.choice(near))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A fraction, sometimes times a letter or pi."""

    value: Fraction
    factor: str = ""

    @classmethod
    def draw(cls, rng: Random) -> Ratio:
        low = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 25, 27, 36, 49, 100, 2**40])
        top = rng.choice([rng.randint(1, 9), rng.randint(1, 60), rng.randint(1, 1000)])
        value = Fraction(top * rng.choice([1, -1, 1]), low)
        return cls(value, rng.choice(["", "", "", "", "x", r"\pi", "n^2"]))

    def meaning(self) -> Meaning:
        factor = {"": "1", r"\pi": "pi", "x": "x", "n^2": "n**2"}[self.factor]
        return {"value": f"({self.value})*({factor})"}

    def spell(self, rng: Random) -> str:
        if not self.factor:
            return spelling.fraction(rng, self.value)
        top, low = self.value.numerator, self.value.denominator
        if low == 1 or rng.random() < 0.4:
            return spelling.plain(self.value) + self.factor
        sign = "-" if top < 0 else ""
        above = self.factor if abs(top) == 1 else f"{abs(top)}{self.factor}"
        below = rng.choice([str(low), f"{low}"])
        return rng.choice([rf"{sign}\frac{{{above}}}{{{below}}}", f"{sign}{above}/{below}"])

    def perturb(self, rng: Random) -> Ratio:
        top, low = self.value.numerator, self.value.denominator
        near = [-self.value, Fraction(low, top), Fraction(top + 1, low), Fraction(top, low + 1)]
        near += [self.value + 1, Fraction(top - 1, low), Fraction(top * 10, low)]
        if not self.factor and low % 3 == 0:
            near += [Fraction(round(float(self.value), 4)).limit_denominator(10**4)] * 3
        return replace(self, value=rng.choice(near))


@dataclass(frozen=True, slots=True)
class Surd:
    """a + b sqrt(c)."""

    a: Fraction
    b: Fraction
    c: int

    @classmethod
    def draw(cls, rng: Random) -> Surd:
        c = rng.choice([c for c in range(2, 40) if spelling.square_free(c)])
        low = rng.choice([1, 1, 1, 2, 3, 4, 6])
        a = Fraction(rng.choice([0, 0, rng.randint(-9, 9)]), low)
        return cls(a, Fraction(rng.choice([1, 1, 2, 3, 4, 5, -1, -2, 7]), low), c)

    def meaning(self) -> Meaning:
        return {"value": f"({self.a}) + ({self.b})*sqrt({self.c})"}

    def spell(self, rng: Random) -> str:
        return spelling.surd(rng, self.a, self.b, self.c)

    def perturb(self, rng: Random) -> Surd | Whole:
        lost = Whole(self.a + self.b)
        return rng.choice(
            [
                replace(self, a=-self.a, b=-self.b),
                replace(self, b=-self.b),
                replace(self, b=self.b + 1) if self.b != -1 else replace(self, b=self.b - 1),
                replace(self, a=self.a + 1),
                replace(self, c=self.c + 1 if spelling.square_free(self.c + 1) else 41),
                lost,
            ]
        )


UNITS = {
    "cm": ("length", Fraction(1, 100), ["cm", "centimeters"]),
    "m": ("length", Fraction(1), ["m", "meters"]),
    "km": ("length", Fraction(1000), ["km", "kilometers"]),
    "ft": ("length", Fraction(3048, 10000), ["ft", "feet"]),
    "s": ("time", Fraction(1), ["s", "seconds", "sec"]),
    "min": ("time", Fraction(60), ["minutes", "min"]),
    "h": ("time", Fraction(3600), ["hours", "h"]),
    "g": ("mass", Fraction(1, 1000), ["g", "grams"]),
    "kg": ("mass", Fraction(1), ["kg", "kilograms"]),
    "cm2": ("area", Fraction(1, 10000), ["cm^2", "square centimeters", "cm^{2}"]),
    "m2": ("area", Fraction(1), ["m^2", "square meters", "m^{2}"]),
    "cm3": ("volume", Fraction(1, 10**6), ["cm^3", "cubic centimeters"]),
    "L": ("volume", Fraction(1, 1000), ["liters", "L"]),
    "km/h": ("speed", Fraction(1000, 3600), ["km/h", "kilometers per hour"]),
    "m/s": ("speed", Fraction(1), ["m/s", "meters per second"]),
    "deg": ("angle", Fraction(1), ["degrees", r"^\circ", r"^{\circ}"]),
    "dollar": ("money", Fraction(1), ["dollars", "$"]),
    "apples": ("apples", Fraction(1), ["apples"]),
    "students": ("students", Fraction(1), ["students"]),
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A positive number of some unit."""

    value: Fraction
    unit: str

    @classmethod
    def draw(cls, rng: Random) -> Quantity:
        return cls(Fraction(rng.randint(1, 400), rng.choice([1, 1, 1, 2, 4, 10])), rng.choice(list(UNITS)))

    def meaning(self) -> Meaning:
        dimension, scale, _ = UNITS[self.unit]
        return {"quantity": [str(self.value * scale), dimension]}

    def spell(self, rng: Random) -> str:
        unit = rng.choice(UNITS[self.unit][2])
        number = spelling.decimal(self.value) or spelling.plain(self.value)
        if unit == "$":
            return rf"\${number}"
        if unit.startswith("^"):
            return number + unit
        if "^" in unit:
            name, power = unit.split("^")
            return rf"{number}\text{{ {name}}}^{power}"
        space = rng.choice(["", r"\,", r"\ "])
        return rng.choice(
            [rf"{number} \text{{ {unit}}}", rf"{number}{space}\text{{ {unit}}}", f"{number} {unit}"]
        )

    def perturb(self, rng: Random) -> Quantity:
        other = rng.choice([name for name in UNITS if name != self.unit])
        near = [replace(self, unit=other), replace(self, unit=other), replace(self, value=self.value + 1)]
        return rng.choice([*near, replace(self, value=self.value * 10)])


@dataclass(frozen=True, slots=True)
class Share:
    """A percentage; as a number it is a hundredth of it."""

    value: Fraction
    signed: bool = True

    @classmethod
    def draw(cls, rng: Random) -> Share:
        return cls(Fraction(rng.randint(1, 250), rng.choice([1, 1, 2, 3, 8, 10])))

    def meaning(self) -> Meaning:
        return {"value": str(self.value / 100 if self.signed else self.value)}

    def spell(self, rng: Random) -> str:
        if not self.signed:
            return spelling.fraction(rng, self.value)
        number = spelling.decimal(self.value) or rng.choice(
            [spelling.plain(self.value), str(self.value)] if self.value < 1 else [_mixed(self.value)]
        )
        share = spelling.decimal(self.value / 100) or spelling.plain(self.value / 100)
        return rng.choice([rf"{number}\%", f"{number}%", rf"{number} \text{{ percent}}", share])

    def perturb(self, rng: Random) -> Share:
        near = [self.value + 1, self.value * 10, self.value / 10, -self.value, 100 - self.value]
        wrong = [Share(value) for value in near]
        return rng.choice([*wrong, Share(Fraction(self.value, 1000), False), Share(self.value / 10, False)])


def _mixed(value: Fraction) -> str:
    whole, rest = divmod(value.numerator, value.denominator)
    return rf"{whole}\frac{{{rest}}}{{{value.denominator}}}" if rest else str(whole)
