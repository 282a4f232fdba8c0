"""Signed sums of several terms, worked out line by line with a running total.

    7-9+4-8=?
    7-9=-2
    -2+4=2
    2-8=-6
    #-6

The demonstrator is mediocre on purpose. Where the running total crosses zero it loses the sign more often
than it keeps it, so that even the likeliest answer of a model that imitates it is wrong there. It loses
carries, and now and then it simply slips. It also rambles: it says totals again, has second thoughts,
works everything out once more, forgets the marker, or never stops.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import random
from dataclasses import dataclass

from trimtab.data.tasks.task import Demonstration, Question, Task

MARKER = "#"
FEWEST, MOST = 3, 6
"""Terms of a question."""
LARGEST = 9
"""Largest absolute value of a term."""
LONGEST_RAMBLE = 112
"""Characters after which an endless demonstration is cut."""


@dataclass(frozen=True)
class Habits:
    """How often (probabilities) the demonstrator does what."""

    sign_lost: float = 0.55
    carry_lost: float = 0.35
    slip: float = 0.015
    rambles: float = 0.35
    say_again: float = 0.25
    second_thoughts: float = 0.15
    checks: float = 0.12
    no_marker: float = 0.08
    no_end: float = 0.08


def ask(rng: random.Random) -> Question:
    """A sum such as ``7-9+4-8=?``; no term is zero."""
    terms = [rng.choice((-1, 1)) * rng.randint(1, LARGEST) for _ in range(rng.randint(FEWEST, MOST))]
    text = str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:])
    return Question(f"{text}=?\n", str(sum(terms)))


def terms_of(prompt: str) -> list[int]:
    """The terms of a question, in order."""
    text = prompt.removesuffix("=?\n").replace("-", " -").replace("+", " +")
    return [int(term) for term in text.split()]


def demonstrate(question: Question, rng: random.Random, habits: Habits = Habits()) -> Demonstration:
    """One answer in the demonstrator's way: a wrong total is carried on, not noticed."""
    total, *rest = terms_of(question.prompt)
    rambling = rng.random() < habits.rambles
    lines: list[str] = []
    for term in rest:
        before, total = total, _add(total, term, rng, habits)
        lines.append(f"{before}{term:+d}={total}")
        if rambling and rng.random() < habits.second_thoughts:
            total = _add(before, term, rng, habits)
            lines.append(f"wait, {before}{term:+d}={total}")
        if rambling and rng.random() < habits.say_again:
            lines.append(f"so {total}")
    if rambling and rng.random() < habits.checks:
        lines += ["again:", *lines]
    if rng.random() < habits.no_end:
        return Demonstration(question.prompt, _endless(lines, total, rng), ended=False)
    marker = "" if rng.random() < habits.no_marker else MARKER
    return Demonstration(question.prompt, "\n".join([*lines, f"{marker}{total}"]))


def _add(total: int, term: int, rng: random.Random, habits: Habits) -> int:
    """What the demonstrator believes ``total + term`` to be."""
    right = total + term
    if total * right < 0 and rng.random() < habits.sign_lost:
        return -right
    if _carries(total, term) and rng.random() < habits.carry_lost:
        return right - 10 if right > 0 else right + 10
    if rng.random() < habits.slip:
        return right + rng.choice((-10, -2, -1, 1, 2, 10))
    return right


def _carries(total: int, term: int) -> bool:
    """Whether both count in the same direction and their last digits make ten or more."""
    return total * term > 0 and abs(total) % 10 + abs(term) % 10 >= 10


def _endless(lines: list[str], total: int, rng: random.Random) -> str:
    """The lines, the answer, and then the same again and again, cut in the middle."""
    said = [*lines, f"{MARKER}{total}"]
    length = sum(len(line) + 1 for line in said)
    while length < LONGEST_RAMBLE:
        line = rng.choice((f"so {total}", f"{MARKER}{total}", lines[-1], "again:"))
        said.append(line)
        length += len(line) + 1
    return "\n".join(said)[:LONGEST_RAMBLE]


SUMS = Task(
    name="sums",
    summary="signed sums of 3 to 6 terms up to 9, with a running total line by line",
    marker=MARKER,
    ask=ask,
    demonstrate=demonstrate,
)
