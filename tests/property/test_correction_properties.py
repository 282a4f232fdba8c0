"""Rollout correction against plain padded loops, in value and gradient, and what holds of every factor."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import padded
from tests.property.padded import Padded
from tests.property.steps import Leaves, Ragged, Step, advantaged, flat, loss_of, packed, steps
from trimtab.algorithms import build_algorithm
from trimtab.loop.stages import correct
from trimtab.objectives.correction import Correction
from trimtab.types import Batch

CORRECTIONS = st.builds(
    Correction,
    level=st.sampled_from(["token", "sequence"]),
    form=st.sampled_from(["truncate", "mask"]),
    low=st.sampled_from([0.0, 0.5, 0.9]),
    high=st.sampled_from([1.0, 2.0, 5.0]),
)


@dataclass(frozen=True)
class Sampled:
    """A step, and the log-probabilities of whoever sampled it."""

    step: Step
    rollout: Ragged

    def batch(self) -> Batch:
        batch = packed(self.step)
        fields = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
        return Batch(**{**fields, "rollout_logprobs_T": flat(self.rollout)})


@st.composite
def sampled(draw) -> Sampled:
    step = draw(steps())
    spread = draw(st.sampled_from([0.0, 0.01, 0.5, 15.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Sampled(step, [[old + spread * float(rng.normal()) for old in row] for row in step.old])


def reference_factors(b: Padded, rollout: Ragged, correction: Correction) -> list[dict[int, float]]:
    """By answer and token; written from the formula, on floats of Python."""
    factors = []
    for i in b.answers:
        gaps = {t: float(b.old[i, t]) - rollout[i][t] for t in b.tokens(i)}
        if correction.level == "sequence":
            gaps = dict.fromkeys(gaps, math.fsum(gaps.values()))
        weights = {t: math.exp(min(max(gap, -20.0), 20.0)) for t, gap in gaps.items()}
        low, high = correction.low, correction.high
        if correction.form == "truncate":
            factors.append({t: min(max(w, low), high) for t, w in weights.items()})
        else:
            factors.append({t: w if low <= w <= high else 0.0 for t, w in weights.items()})
    return factors


def per_token(b: Padded, factors: list[dict[int, float]], name: str):
    """The corrected loss: the factor on the policy part alone, denominators as ever."""
    if name == "grpo":
        adv = padded.group_advantages(b.rewards, b.groups, std=True)
        return padded.seq_mean_token_mean(
            b,
            lambda i, t: (
                -factors[i][t] * padded.ppo_clip(padded.ratio_of(b, i, t), adv[i], 0.2, 0.2)
                + 0.04 * padded.k3(b, i, t)
            ),
        )
    if name == "gspo":
        adv = padded.group_advantages(b.rewards, b.groups, std=True)
        rows = []
        for i in b.answers:
            if b.tokens(i):
                mean = sum(factors[i].values()) / len(factors[i])
                rows.append(-mean * padded.ppo_clip(padded.sequence_ratio_of(b, i), adv[i], 3e-4, 4e-4))
        return sum(rows) / len(rows) if rows else 0.0 * b.logp.sum()
    adv, ret = padded.ppo_advantages(b)

    def loss(i, t):
        new, old, target = b.new_values[i, t], b.values[i, t], ret[i][t]
        held = old + torch.clamp(new - old, -0.2, 0.2)
        value = 0.5 * torch.maximum((new - target) ** 2, (held - target) ** 2)
        policy = padded.ppo_clip(padded.ratio_of(b, i, t), adv[i][t], 0.2, 0.2)
        return -factors[i][t] * policy + 0.1 * value - 0.01 * b.entropy[i, t]

    return padded.token_mean(b, loss)


TABLES = {"grpo": {}, "gspo": {}, "ppo": {"terms": {"entropy": {"coef": 0.01}}}}


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(drawn=sampled(), correction=CORRECTIONS)
def test_value_and_gradient_equal_the_padded_loops(name, drawn, correction):
    table = {"name": name, **TABLES[name]}
    algorithm = build_algorithm(table, max_new_tokens=3000, samples_per_prompt=8, correction=correction)
    batch = correct(advantaged(drawn.batch(), algorithm), algorithm)
    batch = algorithm.objective.weighted(batch)
    leaves = Leaves.of(drawn.step)
    loss = loss_of(algorithm.objective, leaves.output(batch), batch)
    found = leaves.gradient(loss)

    b = Padded.of(drawn.step)
    expected_loss = per_token(b, reference_factors(b, drawn.rollout, correction), name)
    parts = torch.autograd.grad(expected_loss, (b.logp, b.entropy, b.new_values), allow_unused=True)
    real = torch.tensor([[t < n for t in range(b.logp.shape[1])] for n in drawn.step.lengths])
    expected = torch.cat(
        [torch.zeros(sum(drawn.step.lengths), dtype=torch.float64) if g is None else g[real] for g in parts]
    )
    scale = max(1.0, float(expected.abs().max()) if len(expected) else 1.0)
    assert float(loss.detach()) == pytest.approx(float(expected_loss.detach()), rel=1e-10, abs=1e-10)
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-11)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(drawn=sampled(), correction=CORRECTIONS)
def test_every_factor_is_bounded_and_masked_tokens_have_1(drawn, correction):
    batch = drawn.batch()
    columns = correction(batch)
    factor_T, side_T = columns["correction_T"], columns["correction_side_T"]
    assert bool((factor_T[~batch.mask_T] == 1.0).all())
    trained_T = factor_T[batch.mask_T]
    floor = correction.low if correction.form == "truncate" else 0.0
    assert bool(((trained_T >= floor) & (trained_T <= correction.high)).all())
    assert not factor_T.requires_grad
    inside_T = batch.mask_T & (side_T == 0)
    assert bool(((factor_T[inside_T] >= correction.low) & (factor_T[inside_T] <= correction.high)).all())
    if correction.form == "mask":
        assert bool((factor_T[batch.mask_T & (side_T != 0)] == 0.0).all())
    if correction.level == "sequence":
        for s in range(batch.num_sequences):
            own = factor_T[(batch.seq_T == s) & batch.mask_T]
            assert len(set(own.tolist())) <= 1, "one weight for the whole answer"


@settings(max_examples=30, deadline=None, derandomize=True)
@given(step=steps(), correction=CORRECTIONS)
def test_where_both_policies_agree_nothing_changes_at_all(step, correction):
    batch = packed(step)  # its sampler is its old policy
    columns = correction(batch)
    assert bool((columns["correction_T"] == 1.0).all())
    assert not bool(columns["correction_clamped_T"].any())
    algorithm = build_algorithm({"name": "grpo"}, max_new_tokens=3000, samples_per_prompt=8)
    batch = algorithm.objective.weighted(advantaged(batch, algorithm))
    gradients = []
    for one in (batch, batch.with_columns(**columns)):
        leaves = Leaves.of(step)
        gradients.append(leaves.gradient(loss_of(algorithm.objective, leaves.output(one), one)))
    assert torch.equal(*gradients)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(drawn=sampled(), correction=CORRECTIONS, poison=st.sampled_from([float("nan"), float("inf"), -800.0]))
def test_what_stands_at_masked_tokens_reaches_no_factor(drawn, correction, poison):
    batch = drawn.batch()
    fields = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
    dirty_T = torch.where(batch.mask_T, batch.rollout_logprobs_T, poison)
    dirty = Batch(**{**fields, "rollout_logprobs_T": dirty_T})
    clean, found = correction(batch), correction(dirty)
    assert all(torch.equal(clean[name], found[name]) for name in clean)


def test_a_trained_nan_stays_visible():
    step = Step([0], [1.0], [[True, True]], *([[[0.0, 0.0]]] * 6))
    batch = Sampled(step, [[float("nan"), 0.0]]).batch()
    for form in ("truncate", "mask"):
        factor_T = Correction(form=form)(batch)["correction_T"]
        assert bool(factor_T.isnan().tolist()[0]), form
