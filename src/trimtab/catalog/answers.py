"""Metrics of the answers sampled, before selection: lengths, grades, pass rates."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section, others

ROLLOUTS = "every rollout sampled in the step, before selection"
GRADED = "graded rollouts sampled in the step, before selection"
GROUPS = "every group sampled in the step, before selection"
SHARE = "share"
JOINED = "sum and count"


def _length(
    name: str, formula: str, meaning: str, reduction: str = JOINED, mask: str = ROLLOUTS
) -> MetricSpec:
    return MetricSpec(
        key=f"length/{name}",
        unit="tokens",
        formula=formula,
        mask=mask,
        reduction=reduction,
        meaning=meaning,
        read_with=others(f"length/{name}", "length/truncated", "reward/outcome", "reward/length_correlation"),
        healthy="steady, or growing slowly while reward/outcome grows",
    )


def _length_quantile(percent: int) -> MetricSpec:
    return _length(
        f"p{percent}",
        f"smallest L with {percent}% of |y| <= L",
        f"{percent}% of the answers are no longer than this.",
        "histogram, 256 linear bins up to max_new_tokens; off by at most half a bin",
    )


LENGTH = Section(
    "Length",
    "Response tokens as sampled, the end token included, before any mask or cut.",
    (
        _length("mean", "sum |y| / S", "Mean number of response tokens."),
        _length(
            "std", "sqrt(mean (|y| - mean)^2), ddof 0", "Spread of the response lengths.", "count, mean, m2"
        ),
        _length("min", "min |y|", "The shortest answer.", "minimum"),
        *(_length_quantile(percent) for percent in (10, 50, 90, 99)),
        _length("max", "max |y|", "The longest answer; max_new_tokens where any was cut.", "maximum"),
        _length(
            "right",
            "mean |y| over right ones",
            "Mean length of right answers.",
            mask="right answers, before selection",
        ),
        _length(
            "wrong",
            "mean |y| over wrong ones",
            "Mean length of wrong answers.",
            mask="wrong answers, before selection",
        ),
        _length(
            "partial",
            "mean |y| over partly right ones",
            "Mean length of answers graded between 0 and 1.",
            mask="partly right answers, before selection",
        ),
        _length(
            "ungraded",
            "mean |y| over ungraded ones",
            "Mean length of answers that have no grade.",
            mask="ungraded answers, before selection",
        ),
        MetricSpec(
            key="length/truncated",
            unit=SHARE,
            formula="mean 1[finish = length]",
            mask=ROLLOUTS,
            reduction=JOINED,
            meaning="Share of answers cut off at max_new_tokens, by the sampler's own finish reason.",
            read_with=("length/p90", "length/max", "grades/wrong"),
            healthy="below 0.05; above 0.2 the limit, not the policy, decides the reward",
        ),
        MetricSpec(
            key="length/aborted",
            unit=SHARE,
            formula="mean 1[finish = abort]",
            mask=ROLLOUTS,
            reduction=JOINED,
            meaning="Share of answers whose sampling was broken off for another reason than length.",
            read_with=("length/truncated",),
            healthy="0",
        ),
        MetricSpec(
            key="length/overlong",
            unit=SHARE,
            formula="mean 1[|y| > maximum - buffer]",
            mask=ROLLOUTS + "; only with a length penalty",
            reduction=JOINED,
            meaning="Share of answers long enough to be touched by the length penalty.",
            read_with=("reward/shaping", "length/truncated"),
            healthy="falling; near 0 for long means that the penalty has nothing left to do",
            source="DAPO, arXiv 2503.14476, eq. 13",
        ),
    ),
)


def _grade(state: str, meaning: str, healthy: str = "") -> MetricSpec:
    return MetricSpec(
        key=f"grades/{state}",
        unit=SHARE,
        formula=f"mean 1[state = {state}]",
        mask=ROLLOUTS,
        reduction=JOINED,
        meaning=meaning,
        read_with=others(f"grades/{state}", "grades/ungraded", "reward/outcome"),
        healthy=healthy,
    )


GRADES = Section(
    "Grades",
    "What the graders could say. The six states add up to 1; only the first three carry a value.",
    (
        _grade("right", "Share of answers graded right (value 1)."),
        _grade("wrong", "Share of answers graded wrong (value 0)."),
        _grade("partial", "Share of answers graded between 0 and 1."),
        _grade(
            "not_gradable",
            "Share that neither gold answer nor checker could decide; they carry no reward.",
            "0",
        ),
        _grade("timeout", "Share whose grading took too long; they carry no reward.", "0"),
        _grade("grader_failed", "Share whose grader raised an error; they carry no reward.", "0"),
        MetricSpec(
            key="grades/ungraded",
            unit=SHARE,
            formula="mean 1[value is None]",
            mask=ROLLOUTS,
            reduction=JOINED,
            meaning="Share of answers without a value: they enter neither baseline nor gradient.",
            read_with=("grades/not_gradable", "grades/timeout", "grades/grader_failed", "groups/too_few"),
            healthy="0",
        ),
        MetricSpec(
            key="grades/part_std/{grader}",
            unit="value",
            formula="std of the grader's own unweighted value, ddof 0",
            mask="sampled rollouts that this grader gave a value",
            reduction="count, mean, m2",
            meaning="How far one grader's values differ; 0 for long means that this part is dead.",
            read_with=("grades/part/{grader}", "groups/mixed"),
            healthy="above 0",
        ),
        MetricSpec(
            key="grades/part/{grader}",
            unit="value in [0, 1]",
            formula="mean of the grader's own unweighted value",
            mask="sampled rollouts that this grader gave a value",
            reduction=JOINED,
            meaning="One grader's part of the grade. A part that never moves cannot teach.",
            read_with=("reward/outcome",),
            healthy="rising, or already near 1",
        ),
    ),
)

PASS = Section(
    "Pass rates in training",
    "On the prompts of the step, with the sampler of training; held-out numbers are under Evaluation.",
    (
        MetricSpec(
            key="pass/at_1",
            unit=SHARE,
            formula="mean 1[state = right]",
            mask=GRADED,
            reduction=JOINED,
            meaning=(
                "Share of graded answers that are right, before "
                "selection: what an honest training curve shows."
            ),
            read_with=("reward/outcome_trained", "evaluation/pass@{k}", "pass/at_group"),
            healthy="rising, with evaluation/pass@1 beside it",
        ),
        MetricSpec(
            key="pass/at_group",
            unit=SHARE,
            formula="mean over groups of 1[any answer right] = pass@G",
            mask=GROUPS + ", with at least one graded rollout",
            reduction=JOINED,
            meaning="Share of prompts solved by at least one of their answers: the room that is left for RL.",
            read_with=("pass/at_1", "groups/all_wrong"),
            healthy="above pass/at_1; falling while pass/at_1 rises means that variety is being lost",
            source="arXiv 2107.03374, eq. 1 with k = n",
        ),
        MetricSpec(
            key="pass/length_{tokens}",
            unit=SHARE,
            formula="mean 1[state = right] over tokens/2 < |y| <= tokens, tokens a power of two",
            mask=GRADED,
            reduction=JOINED,
            meaning=(
                "Share of right answers among those of similar length: "
                "`pass/length_64` holds 33 to 64 tokens."
            ),
            read_with=("length/mean", "length/truncated", "reward/length_correlation"),
            healthy="no cliff at the longest bucket",
        ),
    ),
)

LONG_ENOUGH = ROLLOUTS + ", of 8 tokens or more"

REPETITION = Section(
    "Repetition",
    "What no reader would want: the same words again. Taken from token ids, whatever the grade.",
    (
        MetricSpec(
            key="answers/repetition",
            unit=SHARE,
            formula="mean over answers of 1 - different 4-grams / 4-grams",
            mask=LONG_ENOUGH,
            reduction=JOINED,
            meaning="Share of an answer that it has said before, counted in runs of four tokens.",
            read_with=("answers/looping", "length/mean", "policy/entropy", "length/truncated"),
            healthy="steady; rising with length/mean, the answers are being padded",
        ),
        MetricSpec(
            key="answers/looping",
            unit=SHARE,
            formula="mean 1[1 - different 4-grams / 4-grams > 0.5]",
            mask=LONG_ENOUGH,
            reduction=JOINED,
            meaning="Share of answers that repeat themselves for more than half of their tokens.",
            read_with=("answers/repetition", "length/truncated"),
            healthy="0, or near it",
        ),
    ),
)

SECTIONS = (LENGTH, REPETITION, GRADES, PASS)
