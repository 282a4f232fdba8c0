"""Imported answers: their groups, what they say of a step, and their rows in the record.

Lengths are not in the files. They are taken to be in proportion to the characters, scaled to the step's mean
length where the log has one: an estimate, marked so in run.json. Correlations do not depend on the scale.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.metrics import Correlation, Mean, Metrics, Std, read
from trimtab.record.importers.grades import Scale
from trimtab.record.importers.source import Answer
from trimtab.types import UNIFORM_TOLERANCE, Finish, Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An answer in its group. ``length`` is an estimate; ``finish`` None where nothing tells it."""

    answer: Answer
    prompt_id: str
    draw: int
    index: int
    length: int
    value: float | None
    outcome: float | None
    finish: Finish | None

    @property
    def group(self) -> str:
        return f"{self.prompt_id}#{self.draw}"


def placed(
    answers: Sequence[Answer],
    scale: Scale,
    group_size: int | None,
    draws: Counter[str],
    metrics: Mapping[str, float],
) -> list[Placed]:
    """The answers of one step in their groups, in order of appearance. ``draws`` goes on counting."""
    characters = np.array([len(answer.text) for answer in answers], dtype=np.float64)
    mean = metrics.get("length/mean")
    factor = mean / characters.mean() if mean is not None and len(answers) and characters.mean() > 0 else 1.0
    truncated = metrics.get("length/truncated")
    finish = {0.0: Finish.STOP, 1.0: Finish.LENGTH}.get(-1.0 if truncated is None else truncated)
    found: list[Placed] = []
    for members in _groups([answer.prompt for answer in answers], group_size):
        prompt_id = (
            "prompt-" + hashlib.blake2b(answers[members[0]].prompt.encode(), digest_size=8).hexdigest()
        )
        for index, place in enumerate(members):
            answer = answers[place]
            found.append(
                Placed(
                    answer=answer,
                    prompt_id=prompt_id,
                    draw=draws[prompt_id],
                    index=index,
                    length=max(1, round(characters[place] * factor)),
                    value=scale.grade(answer),
                    outcome=scale.outcome(answer),
                    finish=finish,
                )
            )
        draws[prompt_id] += 1
    return found


def _groups(prompts: Sequence[str], size: int | None) -> list[list[int]]:
    """Places by prompt; a prompt with a multiple of the group's size was drawn several times."""
    places: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt, []).append(place)
    cut: list[list[int]] = []
    for members in places.values():
        step = size if size is not None and len(members) % size == 0 else len(members)
        cut += [members[start : start + step] for start in range(0, len(members), step)]
    return cut


DERIVED = {
    "reward/length_correlation": "over the reward where it is no grade, and estimated lengths",
    "reward/length_correlation_within": "over the reward where it is no grade, and estimated lengths",
    "groups/duplicates": "of equal texts",
    "advantage/absolute": "weighted by estimated lengths",
}
"""What metrics made from the answers mean here, where that is not what the catalogue says."""


def metrics_of(step: Sequence[Placed]) -> dict[str, float]:
    """What the answers of a step say under our keys. Grades decide where there are some."""
    judged = [row for row in step if row.outcome is not None and np.isfinite(row.outcome)]
    groups: dict[str, list[Placed]] = {}
    for row in judged:
        groups.setdefault(row.group, []).append(row)
    metrics: Metrics = {}
    if judged:
        outcomes, lengths = _columns(judged)
        metrics["reward/length_correlation"] = Correlation.of(outcomes, lengths)
        metrics["reward/length_correlation_within"] = _within(list(groups.values()))
        metrics |= _group_metrics(list(groups.values()))
    told = [(abs(row.answer.advantage), row.length) for row in step if row.answer.advantage is not None]
    if told:
        metrics["advantage/absolute"] = Mean(sum(a * n for a, n in told), float(sum(n for _, n in told)))
    graded = [row for row in step if row.value is not None]
    if graded:
        metrics |= _grade_metrics(graded)
    return read(metrics).values


def _columns(rows: Sequence[Placed]) -> tuple[np.ndarray, np.ndarray]:
    outcomes = np.array([row.outcome for row in rows], dtype=np.float64)
    return outcomes, np.array([row.length for row in rows], dtype=np.float64)


def _within(groups: Sequence[Sequence[Placed]]) -> Correlation:
    outcomes, lengths = [np.empty(0)], [np.empty(0)]
    for rows in groups:
        own, long = _columns(rows)
        if len(rows) > 1 and np.ptp(own) > UNIFORM_TOLERANCE:
            outcomes.append(own - own.mean())
            lengths.append(long - long.mean())
    return Correlation.of(np.concatenate(outcomes), np.concatenate(lengths))


def _group_metrics(groups: Sequence[Sequence[Placed]]) -> Metrics:
    spreads = [_columns(rows)[0] for rows in groups if len(rows) > 1]
    mixed = np.array([np.ptp(own) > UNIFORM_TOLERANCE for own in spreads], dtype=np.bool_)
    texts = [[row.answer.text for row in rows] for rows in groups]
    repeated = sum(len(group) - len(set(group)) for group in texts)
    total = sum(len(group) for group in texts)
    return {
        "groups/mixed": Mean.of(mixed),
        "groups/uniform": Mean.of(~mixed),
        "groups/outcome_std": Mean.of([Std.of(own).value or 0.0 for own in spreads]),
        "groups/duplicates": Mean(float(repeated), float(total)),
    }


def _grade_metrics(rows: Sequence[Placed]) -> Metrics:
    values = np.array([row.value for row in rows], dtype=np.float64)
    right, wrong = values >= 1.0 - UNIFORM_TOLERANCE, values <= UNIFORM_TOLERANCE
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.group, []).append(place)
    places = list(groups.values())
    return {
        "reward/outcome": Mean.of(values),
        "grades/right": Mean.of(right),
        "grades/wrong": Mean.of(wrong),
        "grades/partial": Mean.of(~right & ~wrong),
        "pass/at_1": Mean.of(right),
        "pass/at_group": Mean.of([bool(right[own].any()) for own in places]),
        "groups/all_right": Mean.of([bool(right[own].all()) for own in places]),
        "groups/all_wrong": Mean.of([bool(wrong[own].all()) for own in places]),
    }


def row_of(step: int, row: Placed, task: str) -> dict[str, object]:
    """The columns of ``schema.ROW_COLUMNS`` that an import knows; the others are null."""
    grade = None if row.value is None else Grade.of(row.value)
    answer = row.answer
    return {
        "step": step,
        "group": row.group,
        "prompt_id": row.prompt_id,
        "draw": row.draw,
        "index": row.index,
        "task": task,
        "kept": True,
        "reason": "kept",
        "carried": False,
        "prompt": answer.prompt,
        "answer": None if answer.gold is None else json.dumps(answer.gold, ensure_ascii=False, default=repr),
        "text": answer.text,
        "finish": None if row.finish is None else str(row.finish),
        "length": row.length,
        "grade": None if grade is None else str(grade.state),
        "value": row.value,
        "parts": list(answer.rewards.items()),
        "detail": answer.detail,
        "reward": answer.reward,
        "advantage": answer.advantage,
    }
