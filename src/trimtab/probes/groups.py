"""What was sampled and how it was graded, before selection: lengths, grades, pass rates, groups."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.metrics import Bins, Correlation, Histogram, Max, Mean, Metrics, Min, Quantile, Std
from trimtab.probes.repetition import repetition_metrics
from trimtab.types import UNIFORM_TOLERANCE, Finish, GradeState, Rollout, ScoredGroup

MOST_LENGTH_BINS = 256


def group_metrics(
    groups: Sequence[ScoredGroup], *, max_new_tokens: int, penalty_free: int | None = None
) -> Metrics:
    """Metrics of all groups sampled in a step, before selection.

    max_new_tokens: the sampling limit; it fixes the bins of the lengths.
    penalty_free: the longest length without a length penalty; None where there is no penalty.
    """
    answers = _Answers.of(groups)
    if not len(answers.lengths):
        return {}
    return {
        **_length_metrics(answers, length_bins(max_new_tokens), penalty_free),
        **_grade_metrics(groups, answers),
        **_outcome_metrics(groups, answers),
        **_kind_metrics(groups),
        **repetition_metrics([rollout.token_ids for scored in groups for rollout in scored.group.rollouts]),
    }


def length_bins(max_new_tokens: int) -> Bins:
    """Bins of whole tokens: one length a bin (exact quantiles) up to a limit of 255, wider beyond."""
    width = -(-(max_new_tokens + 1) // MOST_LENGTH_BINS)
    steps = -(-(max_new_tokens + 1) // width)
    return Bins("linear", -0.5, steps * width - 0.5, steps)


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """Columns over all rollouts: token counts, grade values (NaN where none), states and finishes."""

    lengths: NDArray[np.float64]
    values: NDArray[np.float64]
    states: NDArray[np.str_]
    finishes: NDArray[np.str_]

    @classmethod
    def of(cls, groups: Sequence[ScoredGroup]) -> _Answers:
        rollouts = [rollout for scored in groups for rollout in scored.group.rollouts]
        grades = [grade for scored in groups for grade in scored.grades]
        return cls(
            np.array([rollout.length for rollout in rollouts], dtype=np.float64),
            np.array([np.nan if grade.value is None else grade.value for grade in grades], dtype=np.float64),
            np.array([str(grade.state) for grade in grades], dtype=np.str_),
            np.array([str(rollout.finish) for rollout in rollouts], dtype=np.str_),
        )

    @property
    def graded(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.values)


def _length_metrics(answers: _Answers, bins: Bins, penalty_free: int | None) -> Metrics:
    lengths = answers.lengths
    histogram = Histogram.of(lengths, bins)
    metrics: Metrics = {
        "length/mean": Mean.of(lengths),
        "length/std": Std.of(lengths),
        "length/min": Min.of(lengths),
        "length/max": Max.of(lengths),
        "length/truncated": Mean.of(answers.finishes == str(Finish.LENGTH)),
        "length/aborted": Mean.of(answers.finishes == str(Finish.ABORT)),
    }
    for percent in (10, 50, 90, 99):
        metrics[f"length/p{percent}"] = Quantile(histogram, percent / 100)
    if penalty_free is not None:
        metrics["length/overlong"] = Mean.of(lengths > penalty_free)
    for state in (GradeState.RIGHT, GradeState.WRONG, GradeState.PARTIAL):
        metrics[f"length/{state}"] = Histogram.of(lengths[answers.states == str(state)], bins)
    metrics["length/ungraded"] = Histogram.of(lengths[~answers.graded], bins)
    return metrics


def _grade_metrics(groups: Sequence[ScoredGroup], answers: _Answers) -> Metrics:
    metrics: Metrics = {f"grades/{state}": Mean.of(answers.states == str(state)) for state in GradeState}
    metrics["grades/ungraded"] = Mean.of(~answers.graded)
    parts: dict[str, list[float]] = {}
    for scored in groups:
        for grade in scored.grades:
            for grader, value in grade.parts.items():
                parts.setdefault(grader, []).append(value)
    for grader, values in parts.items():
        metrics[f"grades/part/{grader}"] = Mean.of(values)
        metrics[f"grades/part_std/{grader}"] = Std.of(values)
    return metrics


def _outcome_metrics(groups: Sequence[ScoredGroup], answers: _Answers) -> Metrics:
    graded = answers.graded
    lengths, values = answers.lengths[graded], answers.values[graded]
    right = answers.states[graded] == str(GradeState.RIGHT)
    buckets = 2 ** np.ceil(np.log2(np.maximum(lengths, 1.0))).astype(np.int64)
    metrics: Metrics = {
        "reward/outcome": Mean.of(values),
        "reward/length_correlation": Correlation.of(values, lengths),
        "reward/length_correlation_within": _within(groups),
        "pass/at_1": Mean.of(right),
    }
    for bucket in np.unique(buckets).tolist():
        metrics[f"pass/length_{bucket}"] = Mean.of(right[buckets == bucket])
    return metrics


def _within(groups: Sequence[ScoredGroup]) -> Correlation:
    """Correlation of value and length after each group's means are taken off; uniform groups are out."""
    values: list[NDArray[np.float64]] = [np.empty(0)]
    lengths: list[NDArray[np.float64]] = [np.empty(0)]
    for scored in groups:
        if scored.is_uniform:
            continue
        pairs = zip(scored.group.rollouts, scored.grades, strict=True)
        own = np.array([rollout.length for rollout, grade in pairs if grade.graded], dtype=np.float64)
        values.append(scored.values - scored.values.mean())
        lengths.append(own - own.mean())
    return Correlation.of(np.concatenate(values), np.concatenate(lengths))


def kind(scored: ScoredGroup) -> str:
    """One of mixed, all_right, all_wrong, all_alike, too_few: what a group's raw grades say."""
    values = scored.values
    if len(values) < 2:
        return "too_few"
    if not scored.is_uniform:
        return "mixed"
    if values.min() >= 1.0 - UNIFORM_TOLERANCE:
        return "all_right"
    return "all_wrong" if values.max() <= UNIFORM_TOLERANCE else "all_alike"


def _kind_metrics(groups: Sequence[ScoredGroup]) -> Metrics:
    kinds = np.array([kind(scored) for scored in groups], dtype=np.str_)
    names = ("mixed", "all_right", "all_wrong", "all_alike", "too_few")
    metrics: Metrics = {f"groups/{name}": Mean.of(kinds == name) for name in names}
    rated = [scored for scored in groups if len(scored.values)]
    metrics["groups/uniform"] = Mean.of(kinds != "mixed")
    metrics["groups/outcome_std"] = Mean.of(
        [Std.of(s.values).value or 0.0 for s in rated if len(s.values) > 1]
    )
    metrics["groups/duplicates"] = _duplicates([scored.group.rollouts for scored in groups])
    metrics["pass/at_group"] = Mean.of([any(g.state is GradeState.RIGHT for g in s.grades) for s in rated])
    return metrics


def _duplicates(groups: Sequence[Sequence[Rollout]]) -> Mean:
    """Share of rollouts with the very token ids of an earlier one of their group."""
    repeated = total = 0
    for rollouts in groups:
        sizes = Counter(rollout.length for rollout in rollouts)
        twins = [rollout.token_ids.tobytes() for rollout in rollouts if sizes[rollout.length] > 1]
        repeated += len(twins) - len(set(twins))
        total += len(rollouts)
    return Mean(float(repeated), float(total))
