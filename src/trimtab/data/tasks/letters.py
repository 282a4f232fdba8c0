"""Letters put in order, by taking the first of those that are left, line by line.

    sort dbca
    a dbc
    ab dc
    abc d
    #abcd

The demonstrator is mediocre on purpose: it overlooks the smallest letter, drops a letter on the way,
says lines again, forgets the marker, or never stops.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import random
import string
from dataclasses import dataclass

from trimtab.data.tasks.task import Demonstration, Question, Task

MARKER = "#"
FEWEST, MOST = 4, 7
"""Letters of a question, all different."""
LONGEST_RAMBLE = 112


@dataclass(frozen=True)
class Habits:
    """How often (probabilities) the demonstrator does what."""

    overlooks: float = 0.15
    drops: float = 0.04
    says_again: float = 0.12
    no_marker: float = 0.08
    no_end: float = 0.08


def ask(rng: random.Random) -> Question:
    """Some letters in a random order, such as ``sort dbca``."""
    letters = rng.sample(string.ascii_lowercase, rng.randint(FEWEST, MOST))
    return Question(f"sort {''.join(letters)}\n", "".join(sorted(letters)))


def demonstrate(question: Question, rng: random.Random, habits: Habits = Habits()) -> Demonstration:
    """One answer in the demonstrator's way: a letter taken too early, or lost, is not noticed."""
    left = list(question.prompt.removeprefix("sort ").strip())
    done = ""
    lines: list[str] = []
    while len(left) > 1:
        order = sorted(left)
        taken = order[rng.random() < habits.overlooks]
        done += taken
        left.remove(taken)
        if len(left) > 1 and rng.random() < habits.drops:
            left.remove(rng.choice(left))
        lines.append(f"{done} {''.join(left)}")
        if rng.random() < habits.says_again:
            lines.append(f"so {lines[-1]}")
    answer = done + "".join(left)
    if rng.random() < habits.no_end:
        said = "\n".join([*lines, *[f"{MARKER}{answer}"] * LONGEST_RAMBLE])
        return Demonstration(question.prompt, said[:LONGEST_RAMBLE], ended=False)
    marker = "" if rng.random() < habits.no_marker else MARKER
    return Demonstration(question.prompt, "\n".join([*lines, f"{marker}{answer}"]))


LETTERS = Task(
    name="letters",
    summary="4 to 7 letters put in order, taking the first of those left line by line",
    marker=MARKER,
    ask=ask,
    demonstrate=demonstrate,
)
