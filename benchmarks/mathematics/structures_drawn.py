"""Drawn answers with parts: intervals, sets, tuples, matrices, equations, formulas, choices, words."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

from benchmarks.mathematics import spelling
from benchmarks.mathematics.numbers_drawn import Ratio, Surd, Whole
from benchmarks.mathematics.rows import Meaning


@dataclass(frozen=True, slots=True)
class Interval:
    """One piece, or two with a gap; an end of None is infinite."""

    ends: tuple[Fraction | None, ...]
    open: tuple[bool, ...]

    @classmethod
    def draw(cls, rng: Random) -> Interval:
        pieces = rng.choice([1, 1, 1, 2])
        low = rng.choice([1, 1, 2, 3])
        drawn = rng.sample(range(-20, 21), 2 * pieces)
        ends: list[Fraction | None] = [Fraction(end, low) for end in sorted(drawn)]
        if rng.random() < 0.3:
            ends[0] = None
        elif rng.random() < 0.4:
            ends[-1] = None
        return cls(tuple(ends), tuple(end is None or rng.random() < 0.5 for end in ends))

    def meaning(self) -> Meaning:
        pieces = []
        for at in range(0, len(self.ends), 2):
            low, high = self.ends[at : at + 2]
            pieces.append(
                [
                    "-oo" if low is None else str(low),
                    "oo" if high is None else str(high),
                    self.open[at],
                    self.open[at + 1],
                ]
            )
        return {"reals": pieces}

    def spell(self, rng: Random) -> str:
        as_text = rng.random() < 0.4
        pieces = [self._piece(rng, at, as_text) for at in range(0, len(self.ends), 2)]
        rng.shuffle(pieces)
        return r" \text{ or } ".join(pieces) if as_text else r"\cup ".join(pieces)

    def _piece(self, rng: Random, at: int, as_text: bool) -> str:
        low, high = self.ends[at : at + 2]
        first, last = (
            None if end is None else rng.choice([spelling.plain(end), str(end)]) for end in (low, high)
        )
        if not as_text:
            left = "(" if self.open[at] else "["
            right = ")" if self.open[at + 1] else "]"
            return left + (first or r"-\infty") + ", " + (last or r"\infty") + right
        less = [" < " if opened else r" \le " for opened in self.open[at : at + 2]]
        if first is None:
            return f"x{less[1]}{last}"
        if last is None:
            more = " > " if self.open[at] else r" \ge "
            return rng.choice([f"x{more}{first}", f"{first}{less[0]}x"])
        return f"{first}{less[0]}x{less[1]}{last}"

    def perturb(self, rng: Random) -> Interval:
        finite = [at for at, end in enumerate(self.ends) if end is not None]
        at = rng.choice(finite)
        opened = list(self.open)
        opened[at] = not opened[at]
        ends = list(self.ends)
        value = ends[at]
        assert value is not None
        ends[at] = value + Fraction(rng.choice([-1, 1]), 7)
        return rng.choice([replace(self, open=tuple(opened)), replace(self, ends=tuple(ends))])


@dataclass(frozen=True, slots=True)
class Parts:
    """A set, a tuple or a matrix of numbers."""

    sort: str
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def draw(cls, rng: Random, sort: str) -> Parts:
        high = rng.randint(1, 3) if sort == "matrix" else 1
        wide = rng.randint(2, 3) if high == 1 else rng.randint(1, 3)

        def entry() -> Any:
            return rng.choice([Whole(Fraction(rng.randint(-30, 30))), Ratio.draw(rng), Surd.draw(rng)])

        return cls(sort, tuple(tuple(entry() for _ in range(wide)) for _ in range(high)))

    def meaning(self) -> Meaning:
        rows = [[entry.meaning()["value"] for entry in row] for row in self.rows]
        return {self.sort: rows if self.sort == "matrix" else rows[0]}

    def spell(self, rng: Random) -> str:
        rows = [[self._entry(entry, rng) for entry in row] for row in self.rows]
        if self.sort == "matrix":
            shape = rng.choice(["pmatrix", "bmatrix"])
            body = r" \\ ".join(" & ".join(row) for row in rows)
            return rf"\begin{{{shape}}} {body} \end{{{shape}}}"
        inside = rows[0]
        if self.sort == "tuple":
            return rng.choice([f"({', '.join(inside)})", rf"\left({','.join(inside)}\right)"])
        rng.shuffle(inside)
        braced = rf"\{{{', '.join(inside)}\}}"
        said = rng.choice([", ", r" \text{ or } ", "; "])
        return rng.choice([braced, braced, said.join(inside), ", ".join(f"x = {item}" for item in inside)])

    def _entry(self, entry: Any, rng: Random) -> str:
        return spelling.plain(entry.value) if isinstance(entry, Whole) else entry.spell(rng)

    def perturb(self, rng: Random) -> Parts:
        rows = [list(row) for row in self.rows]
        row = rng.choice(rows)
        change = rng.choice(["entry", "order", "less", "more", "sort"])
        if change == "order" and self.sort != "set":
            row.reverse()
        elif change == "less" and self.sort != "matrix":
            row.pop()
        elif change == "more" and self.sort != "matrix":
            row.append(Whole(Fraction(99)))
        elif change == "sort" and self.sort != "matrix":
            return replace(self, sort="tuple" if self.sort == "set" else "set")
        elif change == "sort":
            return replace(self, rows=tuple(zip(*self.rows, strict=True)))
        else:
            at = rng.randrange(len(row))
            row[at] = row[at].perturb(rng)
        return replace(self, rows=tuple(map(tuple, rows)))


@dataclass(frozen=True, slots=True)
class Choice:
    """One letter of five."""

    letter: str

    @classmethod
    def draw(cls, rng: Random) -> Choice:
        return cls(rng.choice("ABCDE"))

    def meaning(self) -> Meaning:
        return {"word": self.letter}

    def spell(self, rng: Random) -> str:
        mark = self.letter
        return rng.choice(
            [
                mark,
                f"({mark})",
                rf"\text{{{mark}}}",
                rf"\textbf{{({mark})}}",
                f"{mark}.",
                rf"\mathrm{{{mark}}}",
            ]
        )

    def perturb(self, rng: Random) -> Choice:
        return Choice(rng.choice([mark for mark in "ABCDE" if mark != self.letter]))


WORDS = (
    ("even", "odd"),
    ("yes", "no"),
    ("true", "false"),
    ("increasing", "decreasing"),
    ("no solution", "infinitely many solutions"),
    ("rational", "irrational"),
    ("Sunday", "Saturday"),
    ("circle", "parabola"),
    ("Anna", "Hannah"),
    ("acute", "obtuse"),
)


@dataclass(frozen=True, slots=True)
class Word:
    """One of ten pairs of words that exclude each other."""

    pair: tuple[str, str]
    at: int

    @classmethod
    def draw(cls, rng: Random) -> Word:
        return cls(rng.choice(WORDS), rng.randrange(2))

    def meaning(self) -> Meaning:
        return {"word": self.pair[self.at]}

    def spell(self, rng: Random) -> str:
        word = rng.choice([str, str.lower, str.capitalize, str.upper])(self.pair[self.at])
        return rng.choice(
            [rf"\text{{{word}}}", word, rf"\textbf{{{word}}}", rf"\text{{ {word} }}", word + "."]
        )

    def perturb(self, rng: Random) -> Word:
        other = rng.choice(WORDS)
        return rng.choice([replace(self, at=1 - self.at), Word(other, rng.randrange(2))])
