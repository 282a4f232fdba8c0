"""A first look at all answers of an import: which files count, how rewards are read, how large groups are.

What a grade is has to be told or guessed once for the whole run: rewards that all lie in [0, 1] are grades;
of exactly two rewards the higher one is right; anything else is a reward without a grade.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from trimtab.errors import SettingError, nearest
from trimtab.record.importers.source import Answer, Source, Wishes

MOST_VALUES = 3
"""Different rewards that are kept apart; from three on it does not matter which."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From a reward to a grade in [0, 1]. ``known`` False: these rewards are no grades. why: in words."""

    wrong: float = 0.0
    right: float = 1.0
    part: str | None = None
    known: bool = True
    why: str = ""

    def outcome(self, answer: Answer) -> float | None:
        """What the answer is judged by: the named reward function's value, else the whole reward."""
        return answer.reward if self.part is None else answer.rewards.get(self.part)

    def grade(self, answer: Answer) -> float | None:
        outcome = self.outcome(answer)
        if outcome is None or not self.known or not isfinite(outcome):
            return None
        share = (outcome - self.wrong) / (self.right - self.wrong)
        return share if 0.0 <= share <= 1.0 else None


@dataclass(slots=True)
class Look:
    """What one pass over the answers tells; each file is read and forgotten.

    files: our step -> its file. sizes: how often a prompt has so many answers. low, high, values: outcomes.
    """

    files: dict[int, Path] = field(default_factory=dict[int, Path])
    answers: int = 0
    parts: set[str] = field(default_factory=set[str])
    sizes: Counter[int] = field(default_factory=Counter[int])
    values: set[float] = field(default_factory=set[float])
    low: float = float("inf")
    high: float = float("-inf")
    complaints: list[str] = field(default_factory=list[str])

    @property
    def group_size(self) -> int | None:
        """Answers a prompt in most groups; None without answers."""
        return self.sizes.most_common(1)[0][0] if self.sizes else None

    def take(self, answers: Sequence[Answer], part: str | None) -> None:
        self.answers += len(answers)
        self.sizes.update(Counter(answer.prompt for answer in answers).values())
        for answer in answers:
            self.parts.update(answer.rewards)
            outcome = Scale(part=part).outcome(answer)
            if outcome is not None and isfinite(outcome):
                self.low, self.high = min(self.low, outcome), max(self.high, outcome)
                if len(self.values) < MOST_VALUES:
                    self.values.add(round(outcome, 9))


def look_at(source: Source, stride: int, wishes: Wishes) -> Look:
    """Every file of answers once. One that repeats the file before it adds nothing."""
    look, repeated, last = Look(), 0, None
    for at in sorted(source.answers):
        answers = source.read(source.answers[at], look.complaints)
        step, mark = (at - source.first) // stride, hash(tuple((a.prompt, a.text, a.reward) for a in answers))
        if not answers or step < 0:
            continue
        if mark == last:
            repeated += 1
        elif step in look.files:
            look.complaints.append(
                f"the answers of optimizer step {at} differ from those of its step; left out"
            )
        else:
            look.files[step] = source.answers[at]
            look.take(answers, wishes.outcome)
        last = mark
    if repeated:
        look.complaints.append(f"{repeated} files of answers repeat the one before them and were taken once")
    return look


def scale_of(look: Look, wishes: Wishes) -> Scale:
    """How this run's rewards are read. Raises SettingError for a reward function that no answer has."""
    part = wishes.outcome
    if part is not None and look.answers and part not in look.parts:
        raise SettingError(f"no answer has a reward {part!r}{nearest(part, look.parts)}")
    if wishes.scale is not None:
        wrong, right = wishes.scale
        return Scale(wrong, right, part, why=f"as given, {wrong:g} is wrong and {right:g} is right")
    if not look.values or (look.low >= 0.0 and look.high <= 1.0):
        return Scale(part=part, why="rewards in [0, 1] are taken as grades")
    low, high = look.low, look.high
    if len(look.values) == 2:
        return Scale(low, high, part, why=f"{low:g} is taken as wrong, {high:g} as right")
    why = f"rewards from {low:g} to {high:g} are no grades; --scale WRONG RIGHT reads them as such"
    return Scale(part=part, known=False, why=why)
