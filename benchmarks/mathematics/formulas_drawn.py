"""Drawn formulas and equations: identities with random whole numbers, and several ways to write each."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from benchmarks.mathematics.rows import Meaning

Forms = Callable[[int, int, int], list[str]]

FORMULAS: tuple[tuple[str, Forms], ...] = (
    (
        "(x+{a})*(x-{b})",
        lambda a, b, c: [
            f"(x+{a})(x-{b})",
            f"x^2{a - b:+d}x-{a * b}",
            f"x^{{2}} - {a * b} {a - b:+d} \\cdot x",
            f"(x-{b})(x+{a})",
        ],
    ),
    (
        "(x+{a})**2",
        lambda a, b, c: [f"(x+{a})^2", f"x^2+{2 * a}x+{a * a}", f"({a}+x)^{{2}}", f"x(x+{2 * a})+{a * a}"],
    ),
    (
        "{a}*x*y**{b}",
        lambda a, b, c: [f"{a}xy^{{{b}}}", f"{a}y^{b}x", f"{a} \\cdot x \\cdot y^{b}", f"x\\cdot {a}y^{b}"],
    ),
    (
        "{a}*exp({b}*x)",
        lambda a, b, c: [f"{a}e^{{{b}x}}", f"{a}\\left(e^{{x}}\\right)^{{{b}}}", f"{a}\\exp({b}x)"],
    ),
    (
        "log({a})/log({b}+1)",
        lambda a, b, c: [
            f"\\log_{{{b + 1}}} {a}",
            f"\\frac{{\\ln {a}}}{{\\ln {b + 1}}}",
            f"\\log_{b + 1}({a})",
        ],
    ),
    ("log({a}*x)", lambda a, b, c: [f"\\ln({a}x)", f"\\ln {a} + \\ln x", f"\\ln\\left(x\\cdot {a}\\right)"]),
    (
        "{a}*sin(2*{b}*x)",
        lambda a, b, c: [f"{a}\\sin {2 * b}x", f"{2 * a}\\sin({b}x)\\cos({b}x)", f"{a}\\sin({2 * b}x)"],
    ),
    (
        "1 - 2*sin({a}*t)**2",
        lambda a, b, c: [
            f"\\cos({2 * a}t)",
            f"1-2\\sin^2({a}t)",
            f"2\\cos^{{2}}({a}t)-1",
            f"\\cos^2({a}t)-\\sin^2({a}t)",
        ],
    ),
    (
        "{a}/(x+{b})",
        lambda a, b, c: [f"\\frac{{{a}}}{{x+{b}}}", f"{a}(x+{b})^{{-1}}", f"{a}/(x+{b})", f"{a}/({b}+x)"],
    ),
    (
        "1/(x-{a}) - 1/(x+{b})",
        lambda a, b, c: [
            f"\\frac{{1}}{{x-{a}}}-\\frac{{1}}{{x+{b}}}",
            f"\\frac{{{a + b}}}{{(x-{a})(x+{b})}}",
        ],
    ),
    (
        "n*(n+{a})/2",
        lambda a, b, c: [
            f"\\frac{{n(n+{a})}}{{2}}",
            f"\\frac{{n^2+{a}n}}{{2}}",
            f"n(n+{a})/2",
            f"\\frac12 n(n+{a})",
        ],
    ),
    ("2**(n+{a})", lambda a, b, c: [f"2^{{n+{a}}}", f"{2**a}\\cdot 2^n", f"2^n \\times {2**a}", f"2^{a}2^n"]),
    ("{a} + {b}*i", lambda a, b, c: [f"{a}+{b}i", f"{b}i+{a}", f"{a} + {b} i", f"i({b}-{a}i)"]),
    (
        "{a}*pi*r**2/{c}",
        lambda a, b, c: [
            f"\\frac{{{a}\\pi r^2}}{{{c}}}",
            f"\\frac{{{a}}}{{{c}}}\\pi r^{{2}}",
            f"{a}r^2\\pi/{c}",
        ],
    ),
    (
        "sqrt(x**2+{a})/x",
        lambda a, b, c: [f"\\frac{{\\sqrt{{x^2+{a}}}}}{{x}}", f"\\frac{{1}}{{x}}\\sqrt{{{a}+x^2}}"],
    ),
)

EQUATIONS: tuple[tuple[str, Forms], ...] = (
    (
        "y - {a}*x - {b}",
        lambda a, b, c: [
            f"y={a}x+{b}",
            f"y = {b}+{a}x",
            f"{a}x-y+{b}=0",
            f"y-{b}={a}x",
            f"{2 * a}x + {2 * b} = 2y",
        ],
    ),
    (
        "{a}*x + {b}*y - {c}",
        lambda a, b, c: [
            f"{a}x+{b}y={c}",
            f"{a}x+{b}y-{c}=0",
            f"{b}y = {c}-{a}x",
            f"{3 * a}x+{3 * b}y={3 * c}",
        ],
    ),
    (
        "(x-{a})**2 + (y+{b})**2 - {c}",
        lambda a, b, c: [
            f"(x-{a})^2+(y+{b})^2={c}",
            f"x^2-{2 * a}x+y^2+{2 * b}y={c - a * a - b * b}",
            f"(y+{b})^2 = {c}-(x-{a})^{{2}}",
        ],
    ),
    (
        "x**2*{b} + y**2*{a} - {a}*{b}",
        lambda a, b, c: [
            f"\\frac{{x^2}}{{{a}}}+\\frac{{y^2}}{{{b}}}=1",
            f"{b}x^2+{a}y^2={a * b}",
            f"\\frac{{y^2}}{{{b}}}=1-\\frac{{x^2}}{{{a}}}",
        ],
    ),
    ("y - {a}/x", lambda a, b, c: [f"y=\\frac{{{a}}}{{x}}", f"y = {a}x^{{-1}}", f"y-\\frac{{{a}}}{{x}}=0"]),
)


@dataclass(frozen=True, slots=True)
class Formula:
    """One of the templates, with its three numbers."""

    number: int
    places: tuple[int, int, int]
    equation: bool = False

    @classmethod
    def draw(cls, rng: Random, equation: bool = False) -> Formula:
        number = rng.randrange(len(EQUATIONS if equation else FORMULAS))
        first, second, third = rng.sample(range(2, 10), 3)
        return cls(number, (first, second, third), equation)

    def _template(self) -> tuple[str, Forms]:
        return (EQUATIONS if self.equation else FORMULAS)[self.number]

    def meaning(self) -> Meaning:
        a, b, c = self.places
        text = self._template()[0].format(a=a, b=b, c=c)
        return {"equation" if self.equation else "value": text}

    def spell(self, rng: Random) -> str:
        return rng.choice(self._template()[1](*self.places))

    def perturb(self, rng: Random) -> Formula:
        a, b, c = self.places
        return replace(self, places=rng.choice([(a + 1, b, c), (a, b + 1, c), (b, a, c), (a, b, c + 1)]))
