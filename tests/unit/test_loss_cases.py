"""Small cases with outcomes computed by hand: the ones every user of these losses should be able to redo."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from trimtab.algorithms import ALGORITHMS, activity
from trimtab.objectives.aggregate import seq_mean_token_mean, token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_ratio, token_ratio
from trimtab.objectives.regularizers import EntropyBonus, EntropyTarget, ReferenceKL
from trimtab.objectives.surrogate import Clip, SoftGate
from trimtab.types import Batch, ModelOutput


def answers(
    logp, *, old=None, advantages=None, groups=None, rewards=None, mask=None, dtype=torch.float64
) -> Batch:
    """A batch from ragged rows; ``old`` defaults to the log-probabilities themselves (ratio 1)."""
    lengths = [len(row) for row in logp]
    count = len(logp)

    def flat(rows, kind=dtype):
        return torch.tensor([x for row in rows for x in row], dtype=kind)

    groups = groups or [0] * count
    rewards_S = torch.tensor(rewards or [0.0] * count, dtype=torch.float64)
    batch = Batch(
        prompts_P=tuple(torch.tensor([g]) for g in range(max(groups) + 1)),
        token_ids_T=torch.zeros(sum(lengths), dtype=torch.int64),
        seq_T=torch.repeat_interleave(torch.arange(count), torch.tensor(lengths)),
        mask_T=flat(mask, torch.bool) if mask else torch.ones(sum(lengths), dtype=torch.bool),
        rollout_logprobs_T=flat(logp, torch.float32),
        group_S=torch.tensor(groups),
        rewards_S=rewards_S,
        outcomes_S=rewards_S,
        truncated_S=torch.zeros(count, dtype=torch.bool),
        version_S=torch.zeros(count, dtype=torch.int64),
        keys_S=tuple(f"p#0/{i}" for i in range(count)),
    ).with_columns(old_logprobs_T=flat(old or logp), ref_logprobs_T=flat(old or logp))
    if advantages is not None:
        batch = batch.with_columns(advantages_T=flat(advantages, torch.float64))
    return batch


def gradient(objective: Objective, logp, batch: Batch, dtype=torch.float64):
    """(loss, d loss / d logp, trace) of the batch's whole update."""
    leaf_T = torch.tensor([x for row in logp for x in row], dtype=dtype, requires_grad=True)
    out = ModelOutput(logprobs_T=leaf_T, entropy_T=torch.zeros_like(leaf_T))
    losses, trace = objective(out, objective.weighted(batch))
    loss = torch.stack(list(losses.values())).sum()
    (grad_T,) = torch.autograd.grad(loss, leaf_T)
    return float(loss.detach()), grad_T, trace


def policy(ratio, surrogate, aggregate=token_mean) -> Objective:
    return Objective(((1.0, PolicyGradient(ratio, surrogate)),), aggregate)


# ----------------------------------------------------------------------------------- the hand example
Y1, Y2 = [math.log(1.5), math.log(0.5)], [math.log(1.5)]


@pytest.mark.parametrize(
    ("name", "weights", "loss", "slopes"),
    [
        ("grpo", [1 / 4, 1 / 4, 1 / 2], 0.325, [0.0, -0.125, 0.75]),
        ("dapo", [1 / 3, 1 / 3, 1 / 3], -0.093333, [0.0, -0.166667, 0.5]),
        ("gspo", [1 / 4, 1 / 4, 1 / 2], 0.316987, [-0.216506, -0.216506, 0.75]),
        ("gspo_token", [1 / 4, 1 / 4, 1 / 2], 0.316987, [-0.216506, -0.216506, 0.75]),
        ("sapo", [1 / 4, 1 / 4, 1 / 2], 0.196793, [-0.352506, -0.117502, 0.700605]),
    ],
)
def test_four_way_example_two_answers_three_tokens(name, weights, loss, slopes):
    """y1: ratios 1.5 and 0.5, A = +1; y2: ratio 1.5, A = -1; no KL."""
    objective = ALGORITHMS[name]().objective
    objective = dataclasses.replace(objective, terms=objective.terms[:1])
    batch = answers([Y1, Y2], old=[[0.0, 0.0], [0.0]], advantages=[[1.0, 1.0], [-1.0]])
    assert objective.weighted(batch).weights_T.tolist() == pytest.approx(weights)
    found, grad_T, _ = gradient(objective, [Y1, Y2], batch)
    assert found == pytest.approx(loss, abs=1e-6)
    assert grad_T.tolist() == pytest.approx(slopes, abs=1e-6)


# --------------------------------------------------------------------------------------- clip (case 7)
@pytest.mark.parametrize(
    ("advantage", "ratio", "slope"),
    [
        (1.0, 1.25, -1.25),
        (1.0, 1.2799, -1.2799),
        (1.0, 1.2801, 0.0),
        (1.0, 1.30, 0.0),
        (-1.0, 0.70, 0.0),
        (-1.0, 0.80001, 0.80001),
        (-1.0, 1.30, 1.30),
        (1.0, 0.70, -0.70),
    ],
)
def test_clip_higher_slopes_on_both_sides_of_the_box(advantage, ratio, slope):
    logp = [[math.log(ratio)]]
    batch = answers(logp, old=[[0.0]], advantages=[[advantage]])
    _, grad_T, trace = gradient(policy(token_ratio, Clip(0.2, 0.28)), logp, batch)
    assert grad_T.item() == pytest.approx(slope, abs=1e-9)
    assert trace.gate_T.item() == (0.0 if slope == 0.0 else 1.0)


# -------------------------------------------------------------------- first update of a step (case 8)
def test_on_policy_grpo_has_no_loss_but_a_gradient_and_says_that_clips_are_inactive():
    logp = [[-1.0, -2.0], [-1.5], [-0.5, -0.5, -3.0], [-2.0]]
    algorithm = ALGORITHMS["grpo"]()
    batch = answers(logp, rewards=[1.0, 0.0, 0.0, 0.0])
    batch = batch.with_columns(**algorithm.advantage(batch))
    assert batch.advantages_T.tolist() == pytest.approx([1.5] * 2 + [-0.5] * 5, abs=1e-5)
    loss, grad_T, _ = gradient(algorithm.objective, logp, batch)
    assert loss == pytest.approx(0.0, abs=1e-12)
    assert grad_T.norm() > 0.1
    said = activity(algorithm, updates_per_step=1, epochs=1)
    assert "ratio is 1" in said
    assert "inactive" in said
    assert "can act in the other 3" in activity(algorithm, updates_per_step=2, epochs=2)


# ------------------------------------------------------------------------------ aggregation (case 9)
@pytest.mark.parametrize(("aggregate", "expected"), [(token_mean, -0.9802), (seq_mean_token_mean, 0.0)])
def test_ten_tokens_against_a_thousand(aggregate, expected):
    rows = [[0.0] * 10, [0.0] * 1000]
    batch = answers(rows, advantages=[[-1.0] * 10, [1.0] * 1000])
    objective = policy(token_ratio, Clip(), aggregate)
    whole, whole_T, _ = gradient(objective, rows, batch)
    assert whole == pytest.approx(expected, abs=1e-4)
    weighted = objective.weighted(batch)
    parts, cut_T = 0.0, []
    for index in (0, 1):
        micro = weighted.select([index])
        leaf_T = torch.zeros(micro.num_tokens, dtype=torch.float64, requires_grad=True)
        losses, _ = objective(ModelOutput(logprobs_T=leaf_T, entropy_T=torch.zeros_like(leaf_T)), micro)
        (grad_T,) = torch.autograd.grad(losses["policy"], leaf_T)
        parts += float(losses["policy"].detach())
        cut_T.append(grad_T)
    assert parts == pytest.approx(whole, abs=1e-12)
    torch.testing.assert_close(torch.cat(cut_T), whole_T, rtol=0, atol=1e-15)


# ------------------------------------------------------------------------------ GSPO (cases 11, 12)
def test_one_token_of_ten_moves_the_sequence_ratio_by_a_tenth_and_padding_does_not():
    logp, old = [[0.1] + [0.0] * 9], [[0.0] * 10]
    batch = answers(logp, old=old, advantages=[[1.0] * 10])
    _, grad_T, trace = gradient(policy(sequence_ratio, Clip(3e-4, 4e-4)), logp, batch)
    assert trace.ratio_T.tolist() == pytest.approx([1.01005] * 10, abs=1e-5)
    assert not grad_T.any()
    assert not trace.gate_T.any()
    padded_logp = [logp[0] + [-5.0] * 10]
    padded = answers(
        padded_logp, old=[[0.0] * 20], advantages=[[1.0] * 20], mask=[[True] * 10 + [False] * 10]
    )
    _, _, trace = gradient(policy(sequence_ratio, Clip(3e-4, 4e-4)), padded_logp, padded)
    assert trace.ratio_T[:10].tolist() == pytest.approx([1.01005] * 10, abs=1e-5)
    assert trace.ratio_T[10:].tolist() == [1.0] * 10


def test_ratios_that_cancel_leave_the_sequence_alone_while_a_token_clip_cuts_one():
    logp, old = [[2.0, -2.0] + [0.0] * 8], [[0.0] * 10]
    for advantage, cut in ((1.0, 0), (-1.0, 1)):
        batch = answers(logp, old=old, advantages=[[advantage] * 10])
        _, grad_T, trace = gradient(policy(sequence_ratio, Clip(3e-4, 4e-4)), logp, batch)
        assert trace.ratio_T.tolist() == pytest.approx([1.0] * 10)
        assert grad_T.all()
        _, _, trace = gradient(policy(token_ratio, Clip(0.2, 0.28)), logp, batch)
        assert (trace.gate_T == 0).nonzero().squeeze(1).tolist() == [cut]


# ------------------------------------------------------------------------------ SAPO (cases 13, 14)
@pytest.mark.parametrize(
    ("tau", "ratio", "gate"),
    [(0.1, 1.5, 0.9994), (1.0, 1.5, 0.9400), (5.0, 1.5, 0.2804), (20.0, 1.5, 0.0002), (1.0, 2.0, 0.7864)],
)
def test_a_larger_tau_is_a_sharper_gate(tau, ratio, gate):
    ratio_T, adv_T = torch.tensor([ratio, ratio]).double(), torch.tensor([1.0, -1.0]).double()
    assert SoftGate(tau, tau).gate(ratio_T, adv_T).tolist() == pytest.approx([gate] * 2, abs=1e-4)


def test_sapo_on_policy_has_a_small_negative_loss_and_the_plain_gradient():
    logp = [[-1.0]] * 4
    batch = answers(logp, advantages=[[1.0], [1.0], [-1.0], [-1.0]])
    loss, grad_T, _ = gradient(ALGORITHMS["sapo"]().objective, logp, batch)
    assert loss == pytest.approx(-0.0476, abs=1e-4)
    assert grad_T.tolist() == pytest.approx([-0.25, -0.25, 0.25, 0.25])


# -------------------------------------------------------------------- overlong filtering (case 15)
@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "sapo", "rloo"])
def test_masking_one_truncated_answer_equals_leaving_it_out_but_it_stays_in_the_baseline(name):
    logp = [[-1.0, -2.0], [-1.5], [-0.5, -0.5, -3.0, -1.0], [-2.0]]
    mask = [[True] * 2, [True], [False] * 4, [True]]
    algorithm = ALGORITHMS[name]()
    batch = answers(logp, rewards=[1.0, 0.0, 0.0, 0.0], mask=mask)
    batch = batch.with_columns(**algorithm.advantage(batch))
    unmasked = answers(logp, rewards=[1.0, 0.0, 0.0, 0.0])
    same = algorithm.advantage(unmasked)["advantages_T"]
    torch.testing.assert_close(batch.advantages_T, torch.where(batch.mask_T, same, 0.0))
    loss, grad_T, _ = gradient(algorithm.objective, logp, batch)
    kept = batch.select([0, 1, 3])
    short_loss, short_T, _ = gradient(algorithm.objective, [logp[i] for i in (0, 1, 3)], kept)
    assert loss == pytest.approx(short_loss, abs=1e-12)
    torch.testing.assert_close(grad_T[batch.mask_T], short_T)
    assert not grad_T[~batch.mask_T].any()


# ----------------------------------------------------------------------------- overflow (case 16)
def test_a_log_ratio_of_a_hundred_is_finite_in_float32_and_counted():
    logp, old = [[-101.0, -1.0, -1.0]], [[-1.0, -1.0, -1.0]]
    algorithm = ALGORITHMS["grpo"]()
    batch = answers(logp, old=old, advantages=[[-1.0] * 3], dtype=torch.float32)
    loss, grad_T, trace = gradient(algorithm.objective, logp, batch, dtype=torch.float32)
    assert math.isfinite(loss)
    assert grad_T.isfinite().all()
    assert int(trace.clamped_T.sum()) == 1
    kl_only = Objective(((1.0, ReferenceKL("k3")),), token_mean)
    loss, _, trace = gradient(kl_only, logp, batch, dtype=torch.float32)
    assert math.isfinite(loss)
    assert int(trace.clamped_T.sum()) == 1
    loss, _, _ = gradient(algorithm.objective, [[float("nan"), -1.0, -1.0]], batch, dtype=torch.float32)
    assert math.isnan(loss)


# --------------------------------------------------------------------- everything masked (case 17)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_batch_with_every_answer_masked_has_zero_loss_and_gradient_and_no_nan(name):
    logp = [[-1.0, -2.0], [-1.5]]
    algorithm = ALGORITHMS[name]()
    batch = answers(logp, rewards=[1.0, 0.0], mask=[[False] * 2, [False]])
    batch = batch.with_columns(values_T=torch.zeros(3, dtype=torch.float64))
    batch = batch.with_columns(**algorithm.advantage(batch))
    leaf_T = torch.tensor([-1.0, -2.0, -1.5], dtype=torch.float64, requires_grad=True)
    out = ModelOutput(logprobs_T=leaf_T, entropy_T=leaf_T, values_T=leaf_T)
    weighted = algorithm.objective.weighted(batch)
    losses, _ = algorithm.objective(out, weighted)
    loss = torch.stack(list(losses.values())).sum()
    (grad_T,) = torch.autograd.grad(loss, leaf_T)
    assert float(loss.detach()) == 0.0
    assert not grad_T.any()
    assert not weighted.weights_T.any()


# ----------------------------------------------------------------------------- entropy
def test_the_entropy_bonus_pulls_entropy_up_and_its_coefficient_follows_the_target():
    objective = Objective(((0.5, EntropyBonus()),), token_mean)
    batch = objective.weighted(answers([[-1.0, -1.0]]))
    entropy_T = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    losses, _ = objective(ModelOutput(logprobs_T=torch.zeros(2).double(), entropy_T=entropy_T), batch)
    assert float(losses["entropy"].detach()) == -1.0
    (grad_T,) = torch.autograd.grad(losses["entropy"], entropy_T)
    assert grad_T.tolist() == [-0.25, -0.25]
    assert objective.entropy_grad
    assert not objective.with_coefficient("entropy", 0.0).entropy_grad
    with pytest.raises(KeyError, match="kl"):
        objective.with_coefficient("kl", 1.0)

    target = EntropyTarget(target=0.5, change=0.1, maximum=0.25)
    path = [0.0]
    for entropy in (0.4, 0.4, 0.4, 0.6, float("nan"), 0.6, 0.6, 0.6):
        path.append(target.step(path[-1], entropy))
    assert path == pytest.approx([0.0, 0.1, 0.2, 0.25, 0.15, 0.15, 0.05, 0.0, 0.0])
