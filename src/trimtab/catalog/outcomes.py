"""Metrics of rewards and groups."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.answers import GRADED, JOINED, ROLLOUTS, SHARE
from trimtab.catalog.spec import MetricSpec, Section, others

GROUPS = "every group sampled in the step, before selection"

REWARD = Section(
    "Reward",
    "Raw outcomes are the graders' values; rewards are what is optimised: scaled, with length shaping.",
    (
        MetricSpec(
            key="reward/outcome",
            unit="value in [0, 1]",
            formula="mean of the grade's value",
            mask=GRADED,
            reduction=JOINED,
            meaning=(
                "The raw outcome of everything sampled, before scale, "
                "shaping and selection. Headline this one."
            ),
            read_with=("reward/outcome_trained", "groups/mixed", "kl/reference_k3", "length/mean"),
            healthy="rising, then flat",
        ),
        MetricSpec(
            key="reward/outcome_trained",
            unit="value in [0, 1]",
            formula="mean of the grade's value",
            mask="graded rollouts of the groups trained on",
            reduction=JOINED,
            meaning=(
                "The raw outcome after selection. Dynamic sampling pulls "
                "it towards the middle: no progress curve."
            ),
            read_with=("reward/outcome",),
            healthy="near 0.5 under dynamic sampling",
        ),
        MetricSpec(
            key="reward/mean",
            unit="reward",
            formula="mean R",
            mask="graded rollouts of the groups trained on",
            reduction=JOINED,
            meaning="The reward that is optimised: scale and length shaping included.",
            read_with=("reward/outcome_trained", "reward/shaping"),
        ),
        MetricSpec(
            key="reward/std",
            unit="reward",
            formula="sqrt(mean (R - mean R)^2), ddof 0, over all groups together",
            mask="graded rollouts of the groups trained on",
            reduction="count, mean, m2",
            meaning="Spread of the rewards over the whole step; what teaches is the spread inside groups.",
            read_with=("groups/reward_std",),
        ),
        MetricSpec(
            key="reward/shaping",
            unit="reward",
            formula="mean of the length part of R",
            mask="graded rollouts of the groups trained on; only with a length penalty",
            reduction=JOINED,
            meaning="What the length penalty takes away on average.",
            read_with=("reward/shaping_share", "length/overlong", "length/mean"),
            healthy="small against the spread of outcomes",
        ),
        MetricSpec(
            key="reward/shaping_share",
            unit=SHARE,
            formula="mean 1[length part of R != 0]",
            mask="graded rollouts of the groups trained on; only with a length penalty",
            reduction=JOINED,
            meaning="Share of answers that the length penalty touched; 0 for long means that it is idle.",
            read_with=("reward/shaping", "length/overlong"),
            healthy="below 0.2",
        ),
        MetricSpec(
            key="reward/length_correlation",
            unit="r in [-1, 1]",
            formula="Pearson r of (grade's value, |y|)",
            mask=GRADED,
            reduction="sums of products",
            meaning=(
                "Do longer answers earn more? Mixes prompts: hard ones "
                "are long and wrong. Absent where constant."
            ),
            read_with=("reward/length_correlation_within", "length/right", "length/wrong"),
        ),
        MetricSpec(
            key="reward/length_correlation_within",
            unit="r in [-1, 1]",
            formula="Pearson r of (value - group's mean value, |y| - group's mean |y|)",
            mask=GRADED + ", of groups that are not uniform",
            reduction="sums of products",
            meaning=(
                "Of two answers to one prompt, does the longer earn more? This is what the gradient sees."
            ),
            read_with=("reward/length_correlation", "length/mean"),
            healthy="below about 0.3 in magnitude; far above 0, length is being rewarded",
        ),
    ),
)


def _groups(name: str, formula: str, meaning: str, healthy: str = "") -> MetricSpec:
    return MetricSpec(
        key=f"groups/{name}",
        unit=SHARE,
        formula=formula,
        mask=GROUPS,
        reduction=JOINED,
        meaning=meaning,
        read_with=others(f"groups/{name}", "groups/mixed", "groups/all_right", "groups/all_wrong"),
        healthy=healthy,
        source="DAPO, arXiv 2503.14476, eq. 11" if name in ("mixed", "all_right", "all_wrong") else "",
    )


GROUP = Section(
    "Groups",
    (
        "A group is one draw of one prompt. Five kinds add up to 1: "
        "mixed, all right, all wrong, all alike, too few."
    ),
    (
        _groups(
            "mixed",
            "mean 1[max - min > 1e-6]",
            "Share of groups that can teach: answers differ.",
            "above 0.3",
        ),
        _groups(
            "all_right", "mean 1[uniform and min >= 1 - 1e-6]", "Share of groups with only right answers."
        ),
        _groups("all_wrong", "mean 1[uniform and max <= 1e-6]", "Share of groups with only wrong answers."),
        _groups(
            "all_alike",
            "mean 1[uniform, between 0 and 1]",
            "Share of groups with one partial value throughout.",
        ),
        _groups(
            "too_few", "mean 1[fewer than two graded]", "Share of groups without two graded answers.", "0"
        ),
        MetricSpec(
            key="groups/uniform",
            unit=SHARE,
            formula="1 - groups/mixed",
            mask=GROUPS,
            reduction=JOINED,
            meaning=(
                "Share of groups without two different grades: a group baseline makes every advantage 0 "
                "there, unless length shaping tells the answers apart."
            ),
            read_with=("groups/all_right", "groups/all_wrong", "advantage/absolute"),
            healthy="below 0.7; expect p^G + (1 - p)^G for a pass rate p",
        ),
        MetricSpec(
            key="groups/outcome_std",
            unit="value",
            formula="mean over groups of std(value), ddof 0, graded ones",
            mask=GROUPS + ", with at least two graded rollouts",
            reduction=JOINED,
            meaning="How far the raw outcomes inside a group differ; at most 0.5.",
            read_with=("groups/mixed", "groups/reward_std"),
            healthy="above 0.1",
        ),
        MetricSpec(
            key="groups/reward_std",
            unit="reward",
            formula="mean over groups of std(R), ddof 0, graded ones",
            mask="groups trained on, with at least two graded rollouts",
            reduction=JOINED,
            meaning="How far the rewards inside a trained group differ, length shaping included.",
            read_with=("groups/outcome_std", "reward/shaping"),
            healthy="above 0.1 of the reward's range",
        ),
        MetricSpec(
            key="groups/duplicates",
            unit=SHARE,
            formula="mean 1[same token ids as an earlier rollout of the group]",
            mask=ROLLOUTS,
            reduction=JOINED,
            meaning="Share of answers that repeat another answer of their group token by token.",
            read_with=("policy/entropy", "length/mean"),
            healthy="near 0 for long answers; short tasks repeat naturally",
        ),
    ),
)

SECTIONS = (REWARD, GROUP)
