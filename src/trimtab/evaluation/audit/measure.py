"""What a grader made of the cases: wrong answers accepted, right ones refused, and what it cannot grade.

    false positive   a wrong case graded right            false negative   a right case graded below right
    partial          a wrong case with some value, < 1    ungraded         no grade at all, whatever the case

Shares have Wilson's 95% intervals. They say how a grader does on these cases, not on a model's own answers.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.errors import DataError
from trimtab.evaluation.audit.cases import EXPLOIT_KINDS, Case
from trimtab.evaluation.estimators import wilson
from trimtab.rewards.rows import grade_rows, group_of
from trimtab.rewards.rubric import Rubric
from trimtab.types import Grade, GradeState


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``of``."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.count / self.of, self.of) if self.of else None

    def as_json(self) -> dict[str, Any]:
        return {"count": self.count, "of": self.of, "share": self.value, "interval": self.interval}

    def __str__(self) -> str:
        if self.interval is None:
            return "-"
        low, high = self.interval
        return f"{self.count}/{self.of} ({100 * low:.1f} to {100 * high:.1f}%)"


@dataclass(frozen=True, slots=True)
class Asked:
    """A case and the grade that a grader gave it."""

    case: Case
    grade: Grade

    @property
    def accepted(self) -> bool:
        return self.grade.state is GradeState.RIGHT

    @property
    def verdict(self) -> str | None:
        """What went wrong with a labelled case; None when nothing did, or there is no label."""
        if not self.grade.graded:
            return "ungraded"
        if self.case.right is True and not self.accepted:
            return "false negative"
        if self.case.right is False and self.grade.value:
            return "false positive" if self.accepted else "partial"
        return None


@dataclass(frozen=True, slots=True)
class Audit:
    """All cases as one grader graded them."""

    grader: str
    asked: tuple[Asked, ...]

    def share(self, verdict: str, within: Callable[[Case], bool] = lambda _: True) -> Share:
        """How many of the cases that can be so are; ``ungraded`` of all, the others of graded ones."""
        right = {"false negative": True, "false positive": False, "partial": False}.get(verdict)
        inside = [
            one
            for one in self.asked
            if within(one.case) and (verdict == "ungraded" or (one.grade.graded and one.case.right is right))
        ]
        return Share(sum(one.verdict == verdict for one in inside), len(inside))

    @property
    def exploits(self) -> Share:
        """False positives among the cases that a policy could learn to produce without solving anything."""
        return self.share("false positive", lambda case: case.kind in EXPLOIT_KINDS)

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(one.case.kind for one in self.asked))


async def audit(name: str, rubric: Rubric, cases: Sequence[Case]) -> Audit:
    """Grade every case."""
    rows = [group_of(case.row, number) for number, case in enumerate(cases, start=1)]
    asked: list[Asked] = []
    async for grade in grade_rows(rubric, rows):
        assert not isinstance(grade, DataError), "rows made here are readable"
        asked.append(Asked(cases[len(asked)], grade))
    return Audit(name, tuple(asked))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case that one of two graders accepts and the other does not."""

    case: Case
    accepted: tuple[bool, bool]


def disagreements(one: Audit, other: Audit) -> tuple[Share, list[Disagreement]]:
    """Where two graders disagree, among the cases that both could grade."""
    pairs = [(a, b) for a, b in zip(one.asked, other.asked, strict=True) if a.grade.graded and b.grade.graded]
    found = [Disagreement(a.case, (a.accepted, b.accepted)) for a, b in pairs if a.accepted is not b.accepted]
    return Share(len(found), len(pairs)), found
