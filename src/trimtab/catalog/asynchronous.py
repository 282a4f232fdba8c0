"""Metrics of asynchronous runs: the rollout correction, and how sampling and training share the time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section, others
from trimtab.catalog.tokens import token_metric


def _correction(
    name: str, unit: str, formula: str, meaning: str, healthy: str = "", reduction: str = "sum and count"
) -> MetricSpec:
    return token_metric(
        f"correction/{name}",
        unit,
        formula,
        meaning,
        reduction=reduction,
        healthy=healthy,
        read_with=others(f"correction/{name}", "correction/k3", "correction/ess", "staleness/mean"),
    )


CORRECTION = Section(
    "Rollout correction",
    "w = pi_old / pi_rollout, of a token or of a whole answer; the factor is w truncated to its bounds, or 0 "
    "outside them, and multiplies the policy term. Staleness and the sampler's arithmetic are both in it.",
    (
        _correction("factor", "ratio", "mean factor", "What the policy term is multiplied by.", "0.9 to 1.1"),
        _correction(
            "factor_max",
            "ratio",
            "max factor",
            "The largest factor; at most the upper bound.",
            reduction="maximum",
        ),
        _correction(
            "high",
            "share",
            "mean 1[w > high]",
            "Share of tokens whose weight was above the bound, and so truncated or masked.",
            "below 0.02; above 0.1 the sampler is too old or too different",
        ),
        _correction(
            "low",
            "share",
            "mean 1[w < low]",
            "Share of tokens whose weight was below the bound, and so raised or masked; 0 where low = 0.",
            "below 0.02",
        ),
        _correction(
            "ess",
            "share",
            "(sum factor)^2 / (n sum factor^2)",
            "Effective share of the tokens: how many equal ones would tell as much.",
            "above 0.9; below 0.5 half of the sampling is lost to the weights",
            reduction="three sums",
        ),
        _correction(
            "k3",
            "nats a token",
            "mean (w - 1 - log w), w of the token, unbounded",
            "KL(sampler || old policy), never negative: how far the weights have moved since the answers "
            "were sampled, and what the sampler's arithmetic adds.",
            "below 0.01; grows with cluster.staleness and trainer.learning_rate",
        ),
        _correction(
            "clamped",
            "tokens",
            "number of tokens with |log w| > 20",
            "Log-weights that were clamped before exp.",
            "0",
            reduction="sum",
        ),
    ),
)


def _pace(name: str, unit: str, formula: str, mask: str, meaning: str, healthy: str = "") -> MetricSpec:
    return MetricSpec(
        key=f"async/{name}",
        unit=unit,
        formula=formula,
        mask=mask,
        reduction="two sums" if unit == "share" else "sum",
        meaning=meaning,
        read_with=others(
            f"async/{name}", "async/trainer_wait", "async/sampler_wait", "seconds/step", "staleness/mean"
        ),
        healthy=healthy,
    )


PACE = Section(
    "Sampling beside training",
    "Only where cluster.staleness is above 0. Wall-clock and its consequences: never part of what two equal "
    "runs must agree on.",
    (
        _pace(
            "queue",
            "steps",
            "collected steps that wait",
            "when the step was taken, itself included",
            "How far sampling is ahead: 0 when training had to wait for its groups.",
            "at least 1; always cluster.staleness: training is what everything waits for",
        ),
        _pace(
            "trainer_wait",
            "seconds",
            "wall-clock",
            "the step",
            "How long training stood still, because its groups were not there yet or because sampling had to "
            "end before weights were delivered.",
            "small against seconds/step",
        ),
        _pace(
            "sampler_wait",
            "seconds",
            "wall-clock",
            "before the step's collection began",
            "How long sampling stood still, because the staleness bound let it go no further ahead.",
            "small against seconds/sample",
        ),
        _pace(
            "overlap",
            "share",
            "seconds of the collection in which training did not wait / its seconds",
            "the collection of the step",
            "How much of the sampling was hidden behind training.",
            "near 1 where training is the slower part, near training's share of the time otherwise",
        ),
    ),
)

SECTIONS = (CORRECTION, PACE)
