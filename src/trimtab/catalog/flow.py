"""Metrics of the flow: what was drawn, kept, carried and wasted, and how much of the pool was seen."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section, others


def _count(name: str, unit: str, meaning: str, healthy: str = "") -> MetricSpec:
    return MetricSpec(
        key=f"flow/{name}",
        unit=unit,
        formula=f"number of {unit}",
        mask="the step",
        reduction="sum",
        meaning=meaning,
        read_with=others(f"flow/{name}", "flow/keep_rate", "flow/fill", "groups/mixed"),
        healthy=healthy,
    )


FLOW = Section(
    "Flow of a step",
    "Draws, rollouts, groups and updates are counted apart: none of them stands for another.",
    (
        _count("draws", "prompts", "Prompts drawn in the step, refills included."),
        _count("rounds", "rounds", "Times that prompts were drawn: 1, and one more for each refill."),
        _count("rollouts", "rollouts", "Answers sampled in the step."),
        _count("tokens_sampled", "tokens", "Response tokens sampled in the step."),
        _count("tokens_trained", "tokens", "Response tokens of the groups trained on, before any mask."),
        _count("groups_kept", "groups", "Groups sampled in the step that selection kept."),
        _count("groups_trained", "groups", "Groups trained on in the step, carried ones included."),
        _count("groups_carried_in", "groups", "Groups trained on that an earlier step had sampled."),
        _count("groups_carried_out", "groups", "Kept groups that wait for a later step."),
        _count(
            "groups_wasted", "groups", "Groups that could teach and are thrown away: stale or surplus.", "0"
        ),
        MetricSpec(
            key="flow/dropped/{reason}",
            unit="groups",
            formula="number of groups",
            mask="groups whose fate the step decided",
            reduction="sum",
            meaning=(
                "Groups not trained on, by reason: all-right, "
                "all-wrong, below-band, stale, surplus and so on."
            ),
            read_with=("flow/keep_rate", "groups/all_right", "groups/all_wrong"),
        ),
        MetricSpec(
            key="flow/keep_rate",
            unit="share",
            formula="groups kept / prompts drawn",
            mask="groups sampled in the step",
            reduction="sum and count",
            meaning=(
                "How many of the drawn prompts were worth training on; "
                "its inverse is the price of a useful group."
            ),
            read_with=("groups/mixed", "flow/rounds"),
            healthy="above 0.3; below 0.1 nearly all sampling is wasted",
        ),
        MetricSpec(
            key="flow/fill",
            unit="share",
            formula="groups trained / groups wanted",
            mask="the step",
            reduction="sum and count",
            meaning=(
                "1 when the step found all the groups it wanted; "
                "below, it trained on fewer, rightly weighted."
            ),
            read_with=("flow/keep_rate", "flow/draws"),
            healthy="1",
        ),
        MetricSpec(
            key="flow/pass_shift",
            unit="value in [-1, 1]",
            formula="mean value of trained groups' graded rollouts - mean value of all sampled ones",
            mask="graded rollouts",
            reduction="two sums and counts",
            meaning=(
                "How much easier (above 0) or harder (below 0) the trained answers are than the sampled ones."
            ),
            read_with=("reward/outcome", "reward/outcome_trained"),
        ),
        MetricSpec(
            key="flow/length_shift",
            unit="tokens",
            formula="mean |y| of trained rollouts - mean |y| of all sampled ones",
            mask="rollouts",
            reduction="two sums and counts",
            meaning=(
                "How much longer (above 0) the trained answers are; "
                "selection must not breed short answers unseen."
            ),
            read_with=("length/mean",),
            healthy="small against length/mean",
        ),
        MetricSpec(
            key="staleness/mean",
            unit="versions",
            formula="mean (version at training - oldest version among the rollout's tokens)",
            mask="rollouts trained on",
            reduction="sum and count",
            meaning=(
                "How many published policies old the trained answers are; 0 is on-policy at the first update."
            ),
            read_with=("flow/groups_carried_in", "ratio/token_std", "kl/old_k3"),
            healthy="0, or below the staleness bound with carried groups",
        ),
        MetricSpec(
            key="staleness/max",
            unit="versions",
            formula="max (version at training - oldest version among the rollout's tokens)",
            mask="rollouts trained on",
            reduction="maximum",
            meaning="Age of the oldest trained answer, in published policies.",
            read_with=("staleness/mean",),
            healthy="at most the staleness bound",
        ),
    ),
)


def _pool(name: str, formula: str, meaning: str, healthy: str = "", unit: str = "share") -> MetricSpec:
    return MetricSpec(
        key=f"pool/{name}",
        unit=unit,
        formula=formula,
        mask="the run so far, training prompts",
        reduction="sum" if unit == "changes" else "sum and count",
        meaning=meaning,
        read_with=others(
            f"pool/{name}",
            "pool/drawn",
            "pool/trained",
            "groups/all_right",
            "groups/all_wrong",
            "flow/pass_shift",
        ),
        healthy=healthy,
    )


POOL = Section(
    "Prompt pool",
    "How much of the training prompts the run has reached, and how hard they are for the policy now.",
    (
        _pool("drawn", "prompts drawn so far / prompts", "Share of the pool that was drawn at least once."),
        _pool(
            "trained",
            "prompts trained on so far / prompts",
            "Share of the pool that was trained on at least once.",
            "follows pool/drawn; far below it, selection narrows the pool",
        ),
        _pool(
            "drawn_lately",
            "prompts drawn in the last 20 steps / prompts",
            "Share of the pool that was drawn lately: how much of it a passage of 20 steps sees.",
        ),
        _pool(
            "trained_lately",
            "prompts trained on in the last 20 steps / prompts",
            "Share of the pool that was trained on lately. Falling while pool/drawn_lately holds, selection "
            "narrows the pool.",
            "follows pool/drawn_lately",
        ),
        _pool(
            "mastered",
            "prompts in the band / prompts",
            "Share of the pool that the policy answers right.",
            "rising",
        ),
        _pool(
            "learning", "prompts in the band / prompts", "Share of the pool that it answers right at times."
        ),
        _pool(
            "hopeless",
            "prompts in the band / prompts",
            "Share of the pool that it never gets right.",
            "falling",
        ),
        _pool(
            "pass_rate",
            "mean over seen prompts of the pass rate of their last groups",
            "How easy the seen part of the pool has become.",
            "rising",
        ),
        _pool(
            "pass_shift",
            "mean pass rate of the prompts trained on in the last 20 steps - pool/pass_rate",
            "How much easier (above 0) or harder (below 0) the prompts trained on lately are than the pool.",
            "between -0.2 and 0.2",
            "value in [-1, 1]",
        ),
        _pool(
            "moves_easier",
            "changes from a harder band to an easier one",
            "How often a prompt became easier: hopeless to learning, learning to mastered.",
            "well above pool/moves_harder",
            "changes",
        ),
        _pool(
            "moves_harder",
            "changes from an easier band to a harder one",
            "How often a prompt became harder: forgetting, or luck in small groups.",
            "well below pool/moves_easier",
            "changes",
        ),
    ),
)

SECTIONS = (FLOW, POOL)
