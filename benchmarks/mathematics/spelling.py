"""Many ways to write one number: the harmless differences between two people, or a model and its gold."""
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF001  (Unicode signs are meant)

from __future__ import annotations

from fractions import Fraction
from math import gcd, isqrt
from random import Random

VULGAR = {Fraction(1, 2): "½", Fraction(1, 4): "¼", Fraction(3, 4): "¾", Fraction(1, 3): "⅓"}


def integer(rng: Random, value: int) -> str:
    """As digits, sometimes with separators, a needless plus, or a needless ``.0``."""
    digits = str(abs(value))
    if abs(value) >= 1000:
        digits = rng.choice([digits, f"{abs(value):,}", f"{abs(value):,}".replace(",", r"{,}"), digits])
    sign = "-" if value < 0 else rng.choice(["", "", "", "+"])
    return sign + digits + rng.choice(["", "", "", ".0"])


def plain(value: Fraction) -> str:
    """The one form that needs no choice: ``7``, ``-\\frac{3}{4}``."""
    sign = "-" if value < 0 else ""
    if value.denominator == 1:
        return f"{sign}{abs(value.numerator)}"
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def decimal(value: Fraction) -> str | None:
    """The finite decimal, or None when there is none of at most six places."""
    for places in range(7):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = f"{abs(scaled.numerator):0{places + 1}d}"
            split = len(digits) - places
            text = digits[:split] + ("." + digits[split:] if places else "")
            return ("-" if value < 0 else "") + text
    return None


def fraction(rng: Random, value: Fraction) -> str:
    """A rational number: fraction, solidus, unreduced, mixed, decimal, power of ten."""
    if value.denominator == 1 and rng.random() < 0.8:
        return integer(rng, value.numerator)
    sign, top, low = "-" if value < 0 else "", abs(value.numerator), value.denominator
    times = rng.randint(2, 5)
    forms = [
        rf"{sign}\frac{{{top}}}{{{low}}}",
        rf"{sign}\dfrac{{{top}}}{{{low}}}",
        rf"{sign}\tfrac{{{top}}}{{{low}}}",
        f"{sign}{top}/{low}",
        rf"\frac{{{sign}{top}}}{{{low}}}",
        rf"{sign}\frac{{{top * times}}}{{{low * times}}}",
        rf"{sign}{{{top} \over {low}}}",
        rf"{sign}\left(\frac{{{top}}}{{{low}}}\right)",
    ]
    if top < 10 and low < 10:
        forms += [rf"{sign}\frac{top}{low}", rf"{sign}\frac {top} {low}"]
    if top > low > 1:
        forms += [
            rf"{sign}{top // low}\frac{{{top % low}}}{{{low}}}",
            f"{sign}{top // low} {top % low}/{low}",
        ]
    if sign:
        forms.append(rf"\frac{{{top}}}{{-{low}}}")
    if (text := decimal(value)) is not None:
        forms += [text, text, text + "0" if "." in text else text]
    return rng.choice(forms)


def surd(rng: Random, a: Fraction, b: Fraction, c: int) -> str:
    """a + b sqrt(c), c without square factors, b not 0."""
    if rng.random() < 0.3 and (low := a.denominator * b.denominator // gcd(a.denominator, b.denominator)) > 1:
        return rf"\frac{{{_sum(rng, a * low, b * low, c)}}}{{{low}}}"
    return _sum(rng, a, b, c)


def _sum(rng: Random, a: Fraction, b: Fraction, c: int) -> str:
    root = _root(rng, abs(b), c)
    signed = ("-" if b < 0 else "") + root
    if a == 0:
        return signed
    first = plain(a)
    if rng.random() < 0.5:
        return f"{first}{'-' if b < 0 else '+'}{root}"
    return f"{signed}{first if a < 0 else '+' + first}"


def _root(rng: Random, b: Fraction, c: int) -> str:
    """b sqrt(c) for b > 0: factor outside, inside, as a power, rationalised or not."""
    top, low = b.numerator, b.denominator
    mark = rng.choice([rf"\sqrt{{{c}}}", rf"\sqrt{{{c}}}", rf"\sqrt {c}" if c < 10 else rf"\sqrt{{{c}}}"])
    factor = "" if top == 1 else str(top)
    forms = [factor + mark, factor + rf"\sqrt{{{c}}}"]
    if low > 1:
        forms = [
            rf"\frac{{{factor}{mark}}}{{{low}}}",
            rf"{plain(b)}{mark}",
            rf"\frac{{{factor}{mark}}}{{{low}}}",
        ]
        if low % c == 0:
            forms.append(rf"\frac{{{top * c}}}{{{low}\sqrt{{{c}}}}}")
        inside = Fraction(top * top * c, low * low)
        forms.append(rf"\sqrt{{{plain(inside)}}}")
    else:
        forms += [rf"\sqrt{{{top * top * c}}}", rf"{factor}({c})^{{1/2}}" if factor else rf"{c}^{{1/2}}"]
        if factor:
            forms += [rf"{top}\cdot {mark}", rf"{top} \times \sqrt{{{c}}}"]
    return rng.choice(forms)


def square_free(c: int) -> bool:
    """No square above 1 divides c."""
    return all(c % (k * k) for k in range(2, isqrt(c) + 1))


def dressed(rng: Random, text: str) -> str:
    """The same answer with decoration that changes nothing."""
    return rng.choice(
        [
            text,
            text,
            text,
            f" {text} ",
            f"${text}$",
            rf"\displaystyle {text}",
            text + ".",
            rf"{text}\,",
            rf"{{{text}}}",
            text.replace("(", r"\left(").replace(")", r"\right)") if r"\left" not in text else text,
        ]
    )


def unicode_of(text: str) -> str:
    """The same answer in Unicode signs instead of LaTeX commands, where there are any."""
    for old, new in [
        (r"\left", ""),
        (r"\right", ""),
        (r"\times ", "×"),
        (r"\times", "×"),
        (r"\cdot ", "·"),
        (r"\cdot", "·"),
        (r"\pi", "π"),
        (r"\infty", "∞"),
        (r"\cup", "∪"),
        (r"\le ", "≤"),
        (r"\ge ", "≥"),
        (r"\pm", "±"),
        (r"^\circ", "°"),
        (r"^{2}", "²"),
        (r"^2", "²"),
        (r"\theta", "θ"),
        ("-", "−"),
    ]:
        text = text.replace(old, new)
    for value, sign in VULGAR.items():
        text = text.replace(rf"\frac{{{value.numerator}}}{{{value.denominator}}}", sign)
    for digit in "23567":
        text = text.replace(rf"\sqrt{{{digit}}}", f"√{digit}")
    return text
