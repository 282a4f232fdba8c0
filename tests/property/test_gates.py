"""Gates equal autograd's slopes; at ratio 1 everything is the policy gradient; nothing overflows or leaks."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.steps import Leaves, Step, advantaged, flat, loss_of, packed, steps
from trimtab.algorithms import ALGORITHMS
from trimtab.objectives.aggregate import seq_mean_token_mean, token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import RATIOS, sequence_ratio, sequence_token_ratio, token_ratio
from trimtab.objectives.regularizers import EntropyBonus, ReferenceKL
from trimtab.objectives.surrogate import (
    SURROGATES,
    Clip,
    ClippedWeight,
    DualClip,
    SignDecoupledClip,
    SoftGate,
    Unclipped,
)
from trimtab.objectives.value import ClippedValueLoss
from trimtab.types import ModelOutput

EXAMPLES = [
    Clip(0.2, 0.28),
    Clip(3e-4, 4e-4),
    Clip(0.0, 0.0),
    Clip(1.5, 10.0),
    DualClip(0.2, 0.2, 3.0),
    DualClip(0.2, 0.2, 1.1),
    SoftGate(1.0, 1.05),
    SoftGate(0.3, 12.0),
    ClippedWeight(1.0, 0.5),
    ClippedWeight(0.2, 4.0),
    SignDecoupledClip(),
    SignDecoupledClip(0.2, 0.05, 0.5, "max"),
    SignDecoupledClip(0.1, 0.3, 1.0, "min"),
    Unclipped(),
]


def test_every_surrogate_is_tested_here():
    assert {type(example) for example in EXAMPLES} == set(SURROGATES.values())


@pytest.mark.parametrize("surrogate", EXAMPLES, ids=str)
def test_gate_is_the_slope_over_ratio_times_advantage(surrogate):
    logp_T = torch.cat([torch.linspace(-4.0, 3.0, 997), torch.tensor([0.0])]).double()
    for advantage in (2.0, 0.3, -0.3, -2.0):
        leaf_T = (logp_T - 5.0).clone().requires_grad_()
        ratio_T = torch.exp(leaf_T + 5.0)
        adv_T = torch.full_like(ratio_T, advantage)
        (slope_T,) = torch.autograd.grad(surrogate(ratio_T, adv_T, leaf_T).sum(), leaf_T)
        gate_T = surrogate.gate(ratio_T.detach(), adv_T)
        torch.testing.assert_close(gate_T, slope_T / (ratio_T.detach() * adv_T), rtol=1e-10, atol=1e-12)
        assert (gate_T >= 0).all()


@pytest.mark.parametrize("surrogate", EXAMPLES, ids=str)
def test_without_advantage_there_is_no_gradient_and_the_gate_counts_nothing_as_cut(surrogate):
    leaf_T = torch.linspace(-3.0, 3.0, 101, dtype=torch.float64).requires_grad_()
    ratio_T, adv_T = torch.exp(leaf_T), torch.zeros(101, dtype=torch.float64)
    (slope_T,) = torch.autograd.grad(surrogate(ratio_T, adv_T, leaf_T).sum(), leaf_T)
    assert not slope_T.any()
    assert (surrogate.gate(ratio_T.detach(), adv_T) == 1.0).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(step=steps(), surrogate=st.sampled_from(EXAMPLES), ratio=st.sampled_from(sorted(RATIOS)))
def test_the_traced_gate_predicts_the_gradient_of_the_whole_term(step, surrogate, ratio):
    objective = Objective(((1.0, PolicyGradient(RATIOS[ratio], surrogate)),), token_mean)
    batch = objective.weighted(advantaged(packed(step), ALGORITHMS["dr_grpo"]()))
    leaves = Leaves.of(step)
    losses, trace = objective(leaves.output(batch), batch)
    (found_T,) = torch.autograd.grad(losses["policy"], leaves.logp)
    pull_T = -batch.weights_T * trace.gate_T * trace.ratio_T * batch.advantages_T
    if ratio == "sequence" and not isinstance(surrogate, ClippedWeight):  # a token moves its whole answer
        sums_S = torch.zeros(batch.num_sequences, dtype=torch.float64).index_add(0, batch.seq_T, pull_T)
        pull_T = torch.where(batch.mask_T, (sums_S / batch.trained_S.clamp(min=1))[batch.seq_T], 0.0)
    assert not trace.clamped_T.any()
    torch.testing.assert_close(found_T, pull_T, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(step=steps(spread=0.0))
def test_at_ratio_one_the_gradient_is_the_policy_gradient(name, step):
    """-w A for every token, with alpha on the negative side of the sign-decoupled clip."""
    step = dataclasses.replace(step, logp=step.old, ref=step.old, new_values=step.values)
    algorithm = ALGORITHMS[name]()
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    leaves = Leaves.of(step)
    losses, trace = algorithm.objective(leaves.output(batch), batch)
    (found_T,) = torch.autograd.grad(losses["policy"] + losses.get("kl", 0.0), leaves.logp)
    adv_T = batch.advantages_T
    damping_T = torch.where(adv_T < 0, 0.5 if name == "sign_decoupled" else 1.0, torch.ones_like(adv_T))
    torch.testing.assert_close(found_T, -batch.weights_T * adv_T * damping_T, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(trace.gate_T, damping_T, rtol=0, atol=1e-12)
    assert torch.equal(trace.ratio_T, torch.ones_like(trace.ratio_T))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(step=steps(), surrogate=st.sampled_from(EXAMPLES))
def test_gspo_and_gspo_token_agree_for_constant_advantages(step, surrogate):
    if isinstance(surrogate, ClippedWeight):
        return  # its gradient is each token's own with either ratio
    gradients = []
    for ratio in (sequence_ratio, sequence_token_ratio):
        objective = Objective(((1.0, PolicyGradient(ratio, surrogate)),), seq_mean_token_mean)
        batch = objective.weighted(advantaged(packed(step), ALGORITHMS["gspo"]()))
        leaves = Leaves.of(step)
        loss = loss_of(objective, leaves.output(batch), batch)
        gradients.append(torch.cat([loss.detach()[None], leaves.gradient(loss)]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


def far_apart(dtype=torch.float32) -> tuple[Step, torch.Tensor]:
    """Log-ratios of +-1000 (and 0) against old and reference, positive, negative and no advantage."""
    jumps = [(-1000.0, 0.0), (0.0, -1000.0), (-1.0, -1.0), (-1000.0, -1000.0)]
    rows = [[a for a, _ in jumps] for _ in range(3)]
    olds = [[b for _, b in jumps] for _ in range(3)]
    ones = [[1.0] * 4 for _ in range(3)]
    step = Step(
        groups=[0, 0, 0],
        rewards=[1.0, -1.0, 0.0],
        mask=[[True] * 4] * 3,
        logp=rows,
        old=olds,
        ref=olds,
        entropy=ones,
        values=ones,
        new_values=ones,
    )
    return step, flat(rows, dtype)


ESTIMATORS = list(itertools.product(["k1", "k2", "k3"], [False, True]))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("surrogate", EXAMPLES, ids=str)
def test_finite_at_log_ratios_of_a_thousand_in_float32(ratio, surrogate):
    step, logp_T = far_apart()
    for estimator, weighted in ESTIMATORS:
        terms = (
            (1.0, PolicyGradient(RATIOS[ratio], surrogate)),
            (0.1, ReferenceKL(estimator, weighted)),
            (0.01, EntropyBonus()),
        )
        objective = Objective(terms, token_mean)
        batch = objective.weighted(advantaged(packed(step), ALGORITHMS["grpo"]()))
        leaf_T = logp_T.clone().requires_grad_()
        losses, trace = objective(ModelOutput(logprobs_T=leaf_T, entropy_T=torch.ones(12)), batch)
        (grad_T,) = torch.autograd.grad(torch.stack(list(losses.values())).sum(), leaf_T)
        for tensor in (*losses.values(), grad_T, trace.ratio_T, trace.gate_T, trace.kl_T):
            assert tensor.isfinite().all()
        assert leaf_T.dtype == trace.ratio_T.dtype == torch.float32


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_finite_far_away_and_counts_what_it_clamped(name):
    step, logp_T = far_apart()
    algorithm = ALGORITHMS[name]()
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    leaf_T = logp_T.clone().requires_grad_()
    out = ModelOutput(logprobs_T=leaf_T, entropy_T=torch.ones(12), values_T=torch.ones(12))
    losses, trace = algorithm.objective(out, batch)
    (grad_T,) = torch.autograd.grad(torch.stack(list(losses.values())).sum(), leaf_T)
    assert grad_T.isfinite().all()
    assert all(loss.isfinite() for loss in losses.values())
    if name in ("gspo", "gspo_token"):  # +1000 and -1000 cancel in the mean
        assert not trace.clamped_T.any()
    else:
        assert trace.clamped_T.tolist() == [True, True, False, False] * 3


SMUGGLED = [float("nan"), float("inf"), float("-inf"), 1e30]


@pytest.mark.parametrize("name", [*ALGORITHMS, "everything"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(step=steps(spread=0.3), poison=st.sampled_from(SMUGGLED))
def test_what_stands_at_masked_positions_changes_nothing(name, step, poison):
    if name == "everything":
        algorithm = ALGORITHMS["ppo"]()
        terms = (*algorithm.objective.terms, (0.1, ReferenceKL("k3", True)), (0.01, EntropyBonus()))
        objective = dataclasses.replace(algorithm.objective, terms=terms)
        algorithm = dataclasses.replace(algorithm, objective=objective)
    else:
        algorithm = ALGORITHMS[name]()

    def spoiled(rows):
        return [
            [x if on else poison for x, on in zip(row, mask, strict=True)]
            for row, mask in zip(rows, step.mask, strict=True)
        ]

    fields = ("logp", "old", "ref", "entropy", "values", "new_values")
    dirty = dataclasses.replace(step, **{field: spoiled(getattr(step, field)) for field in fields})
    results = []
    for each in (step, dirty):
        batch = algorithm.objective.weighted(advantaged(packed(each), algorithm))
        mask_T = batch.mask_T
        if each is dirty:
            columns = {
                k: torch.where(mask_T, batch.columns[k], poison)
                for k in ("advantages_T", "returns_T")
                if k in batch.columns
            }
            batch = batch.with_columns(**columns)
        leaves = Leaves.of(each)
        loss = loss_of(algorithm.objective, leaves.output(batch), batch)
        gradient = leaves.gradient(loss)
        assert not gradient[~mask_T.repeat(3)].any()
        results.append((float(loss.detach()), gradient))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nan_at_a_trained_token_is_not_hidden(name):
    step, _ = far_apart()
    logp = [[float("nan"), *row[1:]] for row in step.logp]
    step = dataclasses.replace(step, logp=logp)
    algorithm = ALGORITHMS[name]()
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    leaves = Leaves.of(step)
    losses, trace = algorithm.objective(leaves.output(batch), batch)
    assert losses["policy"].isnan()
    assert trace.ratio_T[0].isnan()
    assert not trace.clamped_T[0]


def test_nan_in_old_logprobs_or_rewards_is_not_hidden():
    step, _ = far_apart()
    algorithm = ALGORITHMS["grpo"]()
    bad_old = dataclasses.replace(step, old=[[float("nan"), *row[1:]] for row in step.old])
    bad_reward = dataclasses.replace(step, rewards=[float("nan"), 0.0, 1.0])
    for bad in (bad_old, bad_reward):
        batch = algorithm.objective.weighted(advantaged(packed(bad), algorithm))
        leaves = Leaves.of(bad)
        assert loss_of(algorithm.objective, leaves.output(batch), batch).isnan()


def test_value_loss_gradient_is_error_inside_the_clip_and_zero_once_it_moved_enough():
    step, _ = far_apart()
    objective = Objective(((1.0, ClippedValueLoss(0.2)),), token_mean)
    batch = packed(step, returns_T=torch.full((12,), 2.0, dtype=torch.float64))
    batch = objective.weighted(batch)  # old values are 1 everywhere
    new_T = torch.tensor([1.0, 1.1, 1.3, 0.5, 1.2, 2.5, *[1.0] * 6], dtype=torch.float64).requires_grad_()
    zeros_T = torch.zeros(12, dtype=torch.float64)
    losses, trace = objective(ModelOutput(logprobs_T=zeros_T, entropy_T=zeros_T, values_T=new_T), batch)
    (grad_T,) = torch.autograd.grad(losses["value"], new_T)
    expected = torch.tensor([-1.0, -0.9, 0.0, -1.5, -0.8, 0.0], dtype=torch.float64) / 12
    torch.testing.assert_close(grad_T[:6], expected)
    assert trace.value_clipped_T[:6].tolist() == [False, False, True, False, False, True]


def test_an_empty_batch_has_a_zero_loss_that_is_connected():
    step = Step([0], [1.0], [[]], [[]], [[]], [[]], [[]], [[]], [[]])
    for make in ALGORITHMS.values():
        algorithm = make()
        batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
        leaves = Leaves.of(step)
        loss = loss_of(algorithm.objective, leaves.output(batch), batch)
        assert float(loss.detach()) == 0.0
        assert loss.requires_grad


def test_token_ratio_counts_the_clamp_at_its_limit():
    step, _ = far_apart()
    batch = packed(dataclasses.replace(step, old=[[0.0] * 4] * 3))
    logp_T = torch.tensor([19.9, 20.1, -20.1, float("nan"), *[0.0] * 8], dtype=torch.float64)
    ratio_T, clamped_T = token_ratio(logp_T, batch)
    assert clamped_T[:4].tolist() == [False, True, True, False]
    assert ratio_T[3].isnan()
