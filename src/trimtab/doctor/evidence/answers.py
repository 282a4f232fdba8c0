"""What the recorded answers say, whatever their grader said: read naively, to judge the grader."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.doctor.case import Case
from trimtab.record.rows import RolloutRow
from trimtab.types import Finish

NUMBER = re.compile(r"[-\N{MINUS SIGN}]?\d+(?:[.,/]\d+)*")
TAIL = 80
"""Characters at the end of an answer in which its result is looked for."""

MOST_ANSWERS, MOST_GROUPS = 2000, 64
"""Answers of a case, and groups of a step, that are read at most; of more, evenly spread ones."""

SURE = 0.75
"""From this share of a group on, the answers agree with each other."""


def result_of(row: RolloutRow) -> str | None:
    """The answer's result as a reader would take it: the last number, else the last words."""
    tail = row.text.strip()[-TAIL:]
    if _wants_number(row.answer):
        numbers = NUMBER.findall(tail)
        return _plain(numbers[-1]) if numbers else None
    lines = [line for line in tail.splitlines() if line.strip()]
    return _plain(lines[-1]) if lines else None


def gold_of(row: RolloutRow) -> str | None:
    """The gold answer as text; None where it is no plain value (a list of tests, a rubric)."""
    found: Any = row.answer
    if isinstance(found, str | int | float) and not isinstance(found, bool) and str(found).strip():
        return _plain(str(found))
    return None


def tells_gold(row: RolloutRow) -> bool | None:
    """Whether the answer's result is the gold one; None where that cannot be read."""
    gold, result = gold_of(row), result_of(row)
    if gold is None:
        return None
    if result is None:
        return False
    return result == gold if _wants_number(row.answer) else bool(re.search(rf"\b{re.escape(gold)}\b", result))


def _wants_number(answer: Any) -> bool:
    return isinstance(answer, int | float) or bool(NUMBER.fullmatch(str(answer).strip()))


def _plain(text: str) -> str:
    return text.strip().replace("\N{MINUS SIGN}", "-").rstrip(".").casefold()


@dataclass(frozen=True, slots=True)
class Reading:
    """Finished, graded answers with a readable gold, counted by grade and by what they say.

    denied: graded 0 although their result is the gold one; granted: graded 1 although it is not.
    told, not_told: all answers whose result is, or is not, the gold one. values: distinct grade values.
    """

    answers: int
    told: int
    not_told: int
    denied: tuple[RolloutRow, ...]
    granted: tuple[RolloutRow, ...]
    values: tuple[float, ...]


def reading(case: Case) -> Reading | None:
    """Over the rollouts that were read; None without any whose gold answer is a plain value."""
    if "reading" not in case.memo:
        rows = case.rollouts.all
        case.memo["reading"] = _reading(rows[:: 1 + len(rows) // MOST_ANSWERS])
    return case.memo["reading"]


def _reading(rows: Sequence[RolloutRow]) -> Reading | None:
    told, not_told = list[RolloutRow](), list[RolloutRow]()
    values: set[float] = set()
    for row in rows:
        if row.finish is not Finish.STOP or row.value is None:
            continue
        values.add(round(row.value, 6))
        tells = tells_gold(row)
        if tells is not None:
            (told if tells else not_told).append(row)
    if not told and not not_told:
        return None
    return Reading(
        answers=len(told) + len(not_told),
        told=len(told),
        not_told=len(not_told),
        denied=tuple(row for row in told if row.value is not None and row.value <= 0.0),
        granted=tuple(row for row in not_told if row.value is not None and row.value >= 1.0),
        values=tuple(sorted(values)),
    )


@dataclass(frozen=True, slots=True)
class Against:
    """Groups whose answers agree on one result that is not the gold one, of all groups that were read."""

    groups: int
    sure_of_gold: int
    sure_of_other: tuple[tuple[RolloutRow, ...], ...]

    @property
    def share(self) -> float:
        return len(self.sure_of_other) / self.groups if self.groups else 0.0


def against_gold(case: Case) -> Against:
    """Where the policy is sure of one result and the gold answer says another."""
    if "against" not in case.memo:
        case.memo["against"] = _against(case)
    return case.memo["against"]


def _against(case: Case) -> Against:
    groups, right, other = 0, 0, list[tuple[RolloutRow, ...]]()
    for step in case.rollouts.steps:
        of_step = list(case.rollouts.groups(step).values())
        for rows in of_step[:: 1 + len(of_step) // MOST_GROUPS]:
            gold = gold_of(rows[0])
            if gold is None or len(rows) < 3:
                continue
            groups += 1
            results = Counter(result_of(row) for row in rows if row.finish is Finish.STOP)
            if not results:
                continue
            result, count = results.most_common(1)[0]
            if result is None or count < SURE * len(rows):
                continue
            if result == gold:
                right += 1
            elif all(row.value is not None and row.value <= 0.0 for row in rows if result_of(row) == result):
                other.append(tuple(row for row in rows if result_of(row) == result))
    return Against(groups, right, tuple(other))


def repeated_prompts(case: Case) -> tuple[float, tuple[RolloutRow, ...]]:
    """(share of a step's groups whose prompt's text another group of the step has too, one row of each)."""
    if "repeated" not in case.memo:
        shares, shown = list[float](), list[RolloutRow]()
        for step in case.rollouts.steps:
            firsts = [rows[0] for rows in case.rollouts.groups(step).values()]
            counts = Counter(row.prompt for row in firsts)
            again = [row for row in firsts if counts[row.prompt] > 1]
            if len(firsts) > 1:
                shares.append(sum(count - 1 for count in counts.values()) / len(firsts))
            shown += again[:2]
        case.memo["repeated"] = float(np.median(shares)) if shares else 0.0, tuple(shown)
    return case.memo["repeated"]


def doubled_start(case: Case) -> tuple[RolloutRow, ...]:
    """Rows whose prompt begins with the same token twice, if all prompts, 3 or more, do so alike.

    A text that itself begins with a doubled character is no evidence.
    """
    rows = {row.prompt_id: row for row in case.rollouts.all if row.tokens is not None}
    if len(rows) < 3:
        return ()
    starts: set[tuple[int, ...]] = set()
    for row in rows.values():
        ids = [] if row.tokens is None else row.tokens.prompt_token_ids[:2].tolist()
        starts.add(tuple(int(one) for one in ids))
        if row.prompt[:1] == row.prompt[1:2] and row.prompt[:1] not in ("<", "["):
            return ()
    [first, *others] = starts
    if others or len(first) < 2 or first[0] != first[1]:
        return ()
    return tuple(rows.values())


def repeated_seeds(case: Case) -> tuple[RolloutRow, ...]:
    """Rollouts that have the seed of another one of their group."""
    found: list[RolloutRow] = []
    for step in case.rollouts.steps:
        for rows in case.rollouts.groups(step).values():
            counts = Counter(row.seed for row in rows if row.seed is not None)  # an import may know none
            found += [row for row in rows if row.seed is not None and counts[row.seed] > 1]
    return tuple(found)
