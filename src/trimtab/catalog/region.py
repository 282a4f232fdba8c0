"""Metrics of the trust region: ratio, gate, and the gradient that clipping removes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section, others
from trimtab.catalog.tokens import JOINED, TRAINED, token_metric

SEQUENCES = "sequences with a trained token, over all updates of the step"
SIGNAL = "trained tokens with A != 0, over all updates of the step"
SKETCH = "histogram, 140 bins a side, log-spaced in |log r| from 1e-6 to 10; |log r| off by at most 6%"


def _ratio(level: str, mask: str, formula: str, about: str) -> tuple[MetricSpec, ...]:
    statistics = (
        ("", "mean r", "Mean of the ratio.", JOINED),
        ("_std", "sqrt(mean (r - mean r)^2), ddof 0", "Spread of the ratio.", "count, mean, m2"),
        ("_min", "min r", "The smallest ratio.", "minimum"),
        ("_max", "max r", "The largest ratio.", "maximum"),
        ("_p1", "smallest x with 1% of r <= x", "1% of the ratios lie at or below this.", SKETCH),
        ("_p99", "smallest x with 99% of r <= x", "99% of the ratios lie at or below this.", SKETCH),
    )
    return tuple(
        token_metric(
            f"ratio/{level}{suffix}",
            "ratio",
            f"{statistic}, r = {formula}",
            f"{meaning} {about}",
            mask=mask,
            reduction=reduction,
            read_with=others(f"ratio/{level}{suffix}", "clip/removed", "gate/mass", "kl/old_k3"),
            healthy="1 at the first update of a step on fresh rollouts" if not suffix else "",
        )
        for suffix, statistic, meaning, reduction in statistics
    )


RATIOS = Section(
    "Ratio to the old policy",
    "r = new / old probability of what was sampled, from unclamped log-probabilities. Whatever ratio the "
    "algorithm uses, both are shown.",
    (
        *_ratio("token", TRAINED, "exp(new - old)", "Taken per token."),
        *_ratio(
            "sequence",
            SEQUENCES,
            "exp(mean over the sequence's trained tokens of (new - old))",
            (
                "Taken per answer: the geometric mean of its token ratios, "
                "as GSPO uses it (arXiv 2507.18071, eq. 7)."
            ),
        ),
        token_metric(
            "ratio/clamped",
            "tokens",
            "number of tokens whose log-ratio was clamped before exp",
            "Clamped tokens get no gradient. Any is worth a look.",
            reduction="sum",
            read_with=("ratio/token_max", "ratio/token_min", "mismatch/logprob_max"),
            healthy="0",
        ),
    ),
)


def _gate(sign: str, statistic: str, formula: str, meaning: str, reduction: str = JOINED) -> MetricSpec:
    symbol = {"positive": "A > 0", "negative": "A < 0"}[sign]
    return token_metric(
        f"gate/{sign}{statistic}",
        "share" if statistic in ("", "_below_half") else "gate",
        formula,
        f"{meaning} Tokens with {symbol}.",
        mask=f"trained tokens with {symbol}, over all updates of the step",
        reduction=reduction,
        read_with=others(f"gate/{sign}{statistic}", "clip/removed", "ratio/token_p1", "ratio/token_p99"),
        healthy="exactly 1 while ratio is 1 (sign_decoupled, A < 0: alpha); then how much the region acts"
        if not statistic
        else "",
    )


def _gates(sign: str) -> tuple[MetricSpec, ...]:
    sketch = "histogram, 101 linear bins centred on 0, 0.01 ... 1; off by at most 0.005"
    return (
        _gate(sign, "", "mean gate", "Mean share of its gradient that a token keeps."),
        _gate(
            sign, "_p5", "smallest x with 5% of gates <= x", "5% of the gates lie at or below this.", sketch
        ),
        _gate(
            sign,
            "_p50",
            "smallest x with 50% of gates <= x",
            "Half of the gates lie at or below this.",
            sketch,
        ),
        _gate(sign, "_below_half", "mean 1[gate < 0.5]", "Share that loses more than half of its gradient."),
    )


GATES = Section(
    "Gate",
    "gate = (d surrogate / d logp) / (r A): 1 free, 0 cut. A hard clip's gate is 0 or 1; SAPO's is 4p(1 - p) "
    "with p = sigmoid(tau (r - 1)), in (0, 1], although its r * gate may exceed 1. One metric for all "
    "algorithms.",
    (
        *_gates("positive"),
        *_gates("negative"),
        token_metric(
            "gate/effective_mass",
            "share",
            "sum |gate A| / sum |A|",
            (
                "Effective gradient mass: the share of the advantages that reaches the policy, every token "
                "counted alike. The same batch under two algorithms compares by this."
            ),
            reduction="two sums",
            read_with=("gate/mass", "clip/removed", "gate/positive", "gate/negative"),
            healthy="0.8 to 1; about 1 - clip/removed where a hard clip cuts, so lower for GSPO",
        ),
        token_metric(
            "gate/mass",
            "share",
            "sum |w A gate| / sum |w A|, w the batch's weights",
            (
                "Share of the gradient's weight that the trust region "
                "lets through; comparable between algorithms."
            ),
            reduction="two sums",
            read_with=("clip/removed", "gate/positive", "gate/negative", "kl/old_k3"),
            healthy="0.8 to 1; exactly 1 in every step means that the trust region never acts",
        ),
    ),
)


def _clip(name: str, formula: str, meaning: str, mask: str = SIGNAL) -> MetricSpec:
    return token_metric(
        f"clip/{name}",
        "share",
        formula,
        meaning,
        mask=mask,
        read_with=others(f"clip/{name}", "gate/mass", "ratio/token_p99", "kl/old_k3"),
        healthy="token clips: below 0.05; GSPO: 0.1 to 0.3 is normal (its paper: 0.15); one update a step: 0",
    )


CLIPS = Section(
    "Clip: gradient removed",
    "A token counts as cut when its gate is exactly 0, not when its ratio lies outside a box. "
    "Side: the ratio that the algorithm uses lies above (high) or below (low) 1.",
    (
        _clip("removed", "mean 1[gate = 0]", "Share of tokens whose gradient is removed."),
        _clip("high", "mean 1[gate = 0 and r > 1]", "Removed because the probability rose too far."),
        _clip("low", "mean 1[gate = 0 and r < 1]", "Removed because the probability fell too far."),
        *(
            _clip(
                f"{sign}_{side}",
                (
                    f"mean 1[gate = 0 and r {'>' if side == 'high' else '<'} 1] "
                    f"over A {'>' if sign == 'positive' else '<'} 0"
                ),
                f"Of the tokens with {sign} advantage, the share removed with a ratio {place} 1.",
                f"trained tokens with A {'>' if sign == 'positive' else '<'} 0, over all updates of the step",
            )
            for sign in ("positive", "negative")
            for side, place in (("high", "above"), ("low", "below"))
        ),
        _clip(
            "sequences",
            "mean over sequences of 1[all gates = 0]",
            "Share of answers that lose their whole gradient, as sequence ratios cut.",
            "sequences with a trained token with A != 0, over all updates of the step",
        ),
    ),
)

SECTIONS = (RATIOS, GATES, CLIPS)
