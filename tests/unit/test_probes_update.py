"""Probes of an update against numbers worked out by hand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.scenes import FOUR_WAY_ADVANTAGES, FOUR_WAY_RATIOS, batch, four_way, report
from trimtab.metrics import merge, read
from trimtab.probes import coefficient_metrics, mismatch_metrics, update_metrics
from trimtab.types import Trace

THIRD = 1 / 3
SAPO_GATES = tuple(
    4 * p * (1 - p)
    for ratio, tau in zip(FOUR_WAY_RATIOS, (1.0, 1.0, 1.05), strict=True)
    for p in [1 / (1 + math.exp(-tau * (ratio - 1)))]
)
SEQUENCE = (math.sqrt(0.75), math.sqrt(0.75), 1.5)

# weights, ratios as used, gates -> what is shown, for the table of README.md
FOUR_WAY = {
    "grpo": (
        ((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, (0, 1, 1)),
        {
            "clip/removed": THIRD,
            "clip/high": THIRD,
            "clip/low": 0,
            "clip/positive_high": 0.5,
            "gate/mass": 0.75,
        }
        | {"clip/negative_high": 0, "clip/sequences": 0, "gate/positive": 0.5, "gate/negative": 1},
    ),
    "dapo": (
        ((THIRD, THIRD, THIRD), FOUR_WAY_RATIOS, (0, 1, 1)),
        {"clip/removed": THIRD, "clip/positive_high": 0.5, "gate/mass": 2 * THIRD},
    ),
    "gspo": (
        ((0.25, 0.25, 0.5), SEQUENCE, (1, 1, 1)),
        {"clip/removed": 0, "clip/sequences": 0, "gate/mass": 1, "gate/positive": 1, "gate/negative": 1},
    ),
    "sapo": (
        ((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, SAPO_GATES),
        {"clip/removed": 0, "gate/positive": SAPO_GATES[0], "gate/negative": SAPO_GATES[2]}
        | {"gate/mass": (SAPO_GATES[0] + SAPO_GATES[2]) / 2, "gate/positive_below_half": 0},
    ),
}


def shown(metrics):
    found = read(metrics)
    assert found.missing == {}
    return found.values


@pytest.mark.parametrize("name", FOUR_WAY)
def test_the_four_way_example(name):
    arguments, expected = FOUR_WAY[name]
    made, trace = four_way(*arguments)
    values = shown(update_metrics(made, report(trace)))
    assert {key: values[key] for key in expected} == pytest.approx(expected, abs=1e-9)
    same_for_all = {
        "ratio/token": 3.5 / 3,
        "ratio/token_min": 0.5,
        "ratio/token_max": 1.5,
        "ratio/token_std": math.sqrt((2 * 1.5**2 + 0.5**2) / 3 - (3.5 / 3) ** 2),
        "ratio/sequence": (math.sqrt(0.75) + 1.5) / 2,
        "ratio/sequence_min": math.sqrt(0.75),
        "ratio/sequence_max": 1.5,
        "ratio/clamped": 0,
        "kl/old_k1": -(2 * math.log(1.5) + math.log(0.5)) / 3,
        "kl/old_k3": (3.5 - 3 - 2 * math.log(1.5) - math.log(0.5)) / 3,
        "policy/entropy": 1.0,
        "advantage/token": THIRD,
        "advantage/absolute": 1,
        "advantage/max": 1,
        "advantage/positive": 2 * THIRD,
        "advantage/negative": THIRD,
        "loss/total": 0.25,
        "loss/policy": 0.2,
        "loss/kl": 0.05,
        "optimizer/updates": 1,
        "optimizer/skipped": 0,
        "optimizer/grad_norm": 1.5,
        "optimizer/grad_norm_max": 1.5,
        "optimizer/learning_rate": 1e-3,
        "seconds/update/forward": 0.5,
    }
    assert {key: values[key] for key in same_for_all} == pytest.approx(same_for_all, rel=1e-6)
    absent = [key for key in values if key.startswith(("kl/reference", "value/", "mismatch/"))]
    assert absent == [], "there is no reference and no critic: their keys are absent, not 0"


def test_gates_of_the_table_are_the_published_gradients():
    """|d loss / d logp| = w |A| r gate, as design.md prints it for SAPO."""
    gradients = [
        w * abs(a) * r * g
        for w, a, r, g in zip(
            (0.25, 0.25, 0.5), FOUR_WAY_ADVANTAGES, FOUR_WAY_RATIOS, SAPO_GATES, strict=True
        )
    ]
    assert gradients == pytest.approx([0.352506, 0.117502, 0.700605], abs=1e-6)


def test_the_quantiles_of_a_hard_gate_are_zero_and_one():
    made, trace = four_way((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, (0, 1, 1))
    values = shown(update_metrics(made, report(trace)))
    assert values["gate/positive_p5"] == 0.0
    assert values["gate/negative_p50"] == 1.0


def test_quantiles_of_the_gate():
    made, trace = four_way((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, (0.2, 0.9, 0.4))
    values = shown(update_metrics(made, report(trace)))
    assert values["gate/positive_p5"] == pytest.approx(0.2, abs=0.005)
    assert values["gate/positive_p50"] == pytest.approx(0.2, abs=0.005)
    assert values["gate/positive_below_half"] == 0.5
    assert values["gate/negative_below_half"] == 1.0


def test_clip_counts_removed_gradient_and_not_what_lies_outside_a_box():
    """r = 0.5 with A > 0 lies outside every box and keeps its gradient; A = 0 counts nowhere."""
    made = batch(
        (5,),
        old_logprobs_T=[-1.0] * 5,
        advantages_T=[1.0, 1.0, -1.0, -1.0, 0.0],
    )
    trace = Trace(
        logprobs_T=torch.zeros(5) - 1,
        ratio_T=torch.tensor([0.5, 1.5, 0.5, 1.5, 1.5]),
        gate_T=torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0]),
    )
    values = shown(update_metrics(made, report(trace)))
    assert values["clip/removed"] == 0.5
    assert (values["clip/high"], values["clip/low"]) == (0.25, 0.25)
    assert (values["clip/positive_high"], values["clip/positive_low"]) == (0.5, 0.0)
    assert (values["clip/negative_high"], values["clip/negative_low"]) == (0.0, 0.5)


def test_a_sequence_ratio_cuts_whole_answers():
    made = batch((2, 3, 1), old_logprobs_T=[-1.0] * 6, advantages_T=[1.0] * 5 + [0.0])
    trace = Trace(
        logprobs_T=torch.zeros(6) - 1,
        ratio_T=torch.tensor([1.01, 1.01, 1.0, 1.0, 1.0, 1.0]),
        gate_T=torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 0.0]),
    )
    values = shown(update_metrics(made, report(trace)))
    assert values["clip/sequences"] == 0.5  # the third answer has no advantage and is no answer cut
    assert values["clip/removed"] == pytest.approx(2 / 5)


def test_kl_to_the_reference():
    made = batch((2,), ref_logprobs_T=[-2.0, -0.5])
    trace = Trace(logprobs_T=torch.tensor([-1.0, -1.0]))
    values = shown(update_metrics(made, report(trace)))
    assert values["kl/reference_k1"] == pytest.approx((1.0 - 0.5) / 2)
    assert values["kl/reference_k3"] == pytest.approx((math.exp(-1.0) - 1 + 1 + math.exp(0.5) - 1 - 0.5) / 2)
    assert "kl/old_k1" not in values


def test_a_small_kl_keeps_its_digits():
    made = batch((1,), old_logprobs_T=[-1.0])
    trace = Trace(logprobs_T=torch.tensor([-1.0 + 2**-20]))
    values = shown(update_metrics(made, report(trace)))
    assert values["kl/old_k3"] == pytest.approx(2**-41, rel=1e-5)


def test_critic():
    made = batch((3,), values_T=[1.0, 2.0, 3.0], returns_T=[2.0, 2.0, 5.0])
    trace = Trace(logprobs_T=torch.zeros(3), value_clipped_T=torch.tensor([True, False, False]))
    values = shown(update_metrics(made, report(trace, critic_grad_norm=4.0)))
    residual, target = np.array([1.0, 0.0, 2.0]), np.array([2.0, 2.0, 5.0])
    assert values["value/explained_variance"] == pytest.approx(1 - residual.var() / target.var())
    assert values["value/mean"] == 2.0
    assert values["value/return"] == 3.0
    assert values["value/clipped"] == pytest.approx(THIRD)
    assert values["optimizer/critic_grad_norm"] == 4.0


def test_updates_of_a_step_are_joined_by_tokens_and_not_by_updates():
    first = batch((1,), old_logprobs_T=[-1.0], advantages_T=[1.0])
    second = batch((3,), old_logprobs_T=[-1.0] * 3, advantages_T=[1.0] * 3)
    parts = [
        update_metrics(b, report(Trace(logprobs_T=b.old_logprobs_T, entropy_T=torch.full((n,), e))))
        for b, n, e in ((first, 1, 4.0), (second, 3, 0.0))
    ]
    values = shown(merge(parts))
    assert values["policy/entropy"] == 1.0  # (4 + 0 + 0 + 0) / 4, not (4 + 0) / 2
    assert values["optimizer/updates"] == 2
    assert values["optimizer/learning_rate"] == pytest.approx(1e-3)


def test_sampler_against_trainer():
    sampler, trainer = [-1.0, -2.0, -0.5], [-1.1, -2.0, -0.4]
    made = batch((2, 1), sampler=sampler, versions=[3, 2], old_logprobs_T=trainer)
    gaps = np.array(trainer) - np.array(sampler)
    values = shown(mismatch_metrics(made))
    weights = np.exp(gaps)
    assert values["mismatch/logprob"] == pytest.approx(0.2 / 3, rel=1e-5)
    assert values["mismatch/logprob_max"] == pytest.approx(0.1, rel=1e-5)
    assert values["mismatch/probability"] == pytest.approx(
        np.abs(np.exp(trainer) - np.exp(sampler)).mean(), rel=1e-5
    )
    assert values["mismatch/probability_max"] == pytest.approx(math.exp(-0.4) - math.exp(-0.5), rel=1e-5)
    assert values["mismatch/k1"] == pytest.approx((0.1 - 0.1) / 3, abs=1e-7)
    assert values["mismatch/k3"] == pytest.approx((weights - 1 - gaps).mean(), rel=1e-4)
    assert values["mismatch/ess"] == pytest.approx(weights.sum() ** 2 / (3 * (weights**2).sum()), rel=1e-6)
    fresh = shown(mismatch_metrics(made, version=3))
    assert fresh["mismatch/logprob"] == pytest.approx(0.05, rel=1e-5)  # the stale answer is left out
    assert read(mismatch_metrics(made, version=9)).values == {}
    assert mismatch_metrics(batch((1,))) == {}


def test_coefficients():
    assert shown(coefficient_metrics({"entropy": 0.01})) == {"coefficient/entropy": 0.01}
