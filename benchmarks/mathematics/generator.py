"""Draws labelled rows: the same thing spelled twice, or a thing and a near miss; sympy proves each label."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from benchmarks.mathematics import spelling
from benchmarks.mathematics.formulas_drawn import Formula
from benchmarks.mathematics.numbers_drawn import Quantity, Ratio, Share, Surd, Whole
from benchmarks.mathematics.proof import same
from benchmarks.mathematics.rows import Row
from benchmarks.mathematics.structures_drawn import Choice, Interval, Parts, Word

DRAWS: dict[str, Callable[[Random], Any]] = {
    "numbers": Whole.draw,
    "fractions": Ratio.draw,
    "radicals": Surd.draw,
    "percent": Share.draw,
    "units": Quantity.draw,
    "intervals": Interval.draw,
    "sets": lambda rng: Parts.draw(rng, "set"),
    "tuples": lambda rng: Parts.draw(rng, "tuple"),
    "matrices": lambda rng: Parts.draw(rng, "matrix"),
    "choice": Choice.draw,
    "text": Word.draw,
    "equations": lambda rng: Formula.draw(rng, equation=True),
    "expressions": Formula.draw,
    "unicode": lambda rng: rng.choice([Ratio, Surd, Interval, Whole, Formula]).draw(rng),
    "broken": lambda rng: rng.choice([Ratio, Surd, Whole]).draw(rng),
}
WRAPPERS = (
    r"\boxed{%s}",
    r"Therefore the answer is $\boxed{%s}$.",
    "Let me check again.\n\n$$\\boxed{%s}$$",
    r"<think>First I thought \boxed{0}.</think>We get $\boxed{%s}$",
)


def generated(seed: int, rows_a_kind: int) -> Iterator[Row]:
    """``rows_a_kind`` rows of each kind, half of them equivalent; the same for the same seed."""
    for kind, draw in DRAWS.items():
        rng = Random(f"{seed}/{kind}")
        seen: set[tuple[str, str]] = set()
        while len(seen) < rows_a_kind:
            row = _row(kind, draw(rng), len(seen) % 2 == 0, rng)
            if row is not None and (row.gold, row.response) not in seen:
                seen.add((row.gold, row.response))
                yield row


def _row(kind: str, thing: Any, equivalent: bool, rng: Random) -> Row | None:
    """A row with this label, or None where the draw does not have it."""
    other = thing if equivalent else thing.perturb(rng)
    meanings = (thing.meaning(), other.meaning())
    if same(*meanings) != equivalent or is_ambiguous(kind, thing, other):
        return None
    gold, answer = thing.spell(rng), other.spell(rng)
    if equivalent and gold == answer and rng.random() < 0.9:
        return None
    if kind == "unicode" and (answer := spelling.unicode_of(answer)).isascii():
        return None
    if kind == "broken":
        answer = _broken(answer, equivalent, rng)
    elif kind not in ("unicode", "choice", "text"):
        answer = spelling.dressed(rng, answer)
    response = rng.choice(WRAPPERS).replace("%s", answer)
    return Row(
        kind=kind, gold=gold, response=response, equivalent=equivalent, origin="generated", meanings=meanings
    )


def is_ambiguous(kind: str, thing: Any, other: Any) -> bool:
    """Pairs whose label is a matter of taste: one thing alone, a percent sign left out."""
    if isinstance(thing, Parts):
        return thing.sort != other.sort and len(thing.rows[0]) == 1
    return kind == "percent" and not other.signed and other.value == thing.value


def _broken(answer: str, equivalent: bool, rng: Random) -> str:
    """Sloppy LaTeX that still reads one way only (both labels), or, for a near miss, a spoilt answer."""
    sloppy: list[Callable[[str], str]] = [
        lambda text: text.replace(r"\right", ""),
        lambda text: "$" + text,
        lambda text: text + r"\\",
        lambda text: "= " + text,
        lambda text: f"**{text}**",
        lambda text: text.replace("\\", "\\\\"),
        lambda text: text.replace(r"\frac", "frac").replace(r"\sqrt", "sqrt"),
        lambda text: rf"\mathbf{{{text}}}",
        lambda text: text + r"\ \ ",
        lambda text: "{" + text + "}",
    ]
    spoilt: list[Callable[[str], str]] = [
        lambda text: text + " +",
        lambda text: text + "?",
        lambda text: text + "^",
    ]
    return rng.choice(sloppy if equivalent or rng.random() < 0.8 else spoilt)(answer)
