"""Critics of every trainer: what they see, learn, and touch."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.tiny import tiny_model
from tests.trainers import (
    BOTH,
    VALUE,
    VALUES,
    annotate,
    batch_for,
    kept_gradients,
    same,
    update,
    weights,
    with_returns,
)
from tests.training import ragged_batch
from trimtab.advantages.gae import GAE


def test_first_values_are_near_zero_and_seen_from_before_the_token(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic)
    batch = annotate(trainer, ragged_batch(model.vocab_size, answers=((5, 0, 9), (2,), (4,))), VALUES)
    assert float(batch.values_T.abs().max()) < 0.05
    last = batch.num_tokens - 1
    changed = batch.token_ids_T.clone()
    changed[last] = (changed[last] + 1) % model.vocab_size
    other = annotate(trainer, dataclasses.replace(batch, token_ids_T=changed), VALUES)
    torch.testing.assert_close(other.values_T, batch.values_T, rtol=0, atol=1e-8)
    moved = (other.columns["bootstrap_S"] - batch.columns["bootstrap_S"]).abs() > 1e-7
    assert moved.nonzero().flatten().tolist() == [batch.num_sequences - 1]


def test_value_after_the_last_token_is_the_next_tokens_value(build, critic):
    """bootstrap_S of an answer cut after k tokens is values_T of token k in the whole answer."""
    model = tiny_model()
    trainer = build(model, critic=critic)
    whole = ragged_batch(model.vocab_size, prompts=(3,), answers=((6,),))
    cut = dataclasses.replace(
        whole,
        token_ids_T=whole.token_ids_T[:4],
        seq_T=whole.seq_T[:4],
        mask_T=whole.mask_T[:4],
        rollout_logprobs_T=whole.rollout_logprobs_T[:4],
    )
    values_T = annotate(trainer, whole, VALUES).values_T
    bootstrap_S = annotate(trainer, cut, VALUES).columns["bootstrap_S"]
    torch.testing.assert_close(bootstrap_S[0], values_T[4], rtol=0, atol=1e-7)


def test_critic_learns_a_constant_reward(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic, critic_learning_rate=3e-2, learning_rate=0.0)
    batch = with_returns(annotate(trainer, batch_for(model), VALUES), 0.7)
    reports = [update(trainer, batch, VALUE) for _ in range(40)]
    assert reports[-1].losses["value"] < 0.03 * reports[0].losses["value"]
    assert reports[0].critic_grad_norm is not None
    values_T = annotate(trainer, batch, VALUES).values_T
    assert float((values_T - 0.7).abs().mean()) < 0.1


@pytest.mark.parametrize(
    ("settings", "touched"),
    [
        ({"critic": "head"}, True),
        ({"critic": "head", "critic_detached": True}, False),
        ({"critic": "model"}, False),
    ],
)
def test_the_value_loss_reaches_the_policys_weights_only_through_a_shared_trunk(build, settings, touched):
    model = tiny_model()
    trainer = build(model, **settings)
    batch = with_returns(annotate(trainer, batch_for(model), VALUES), 1.0)
    before = weights(trainer)
    report = update(trainer, batch, VALUE)
    assert report.applied
    assert bool(report.grad_norm) == touched
    assert report.critic_grad_norm is not None
    assert report.critic_grad_norm > 0.0
    assert same(before, weights(trainer)) != touched


def test_warm_up_trains_the_critic_alone_and_says_so(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic, critic_warmup_updates=2, warmup_updates=4)
    batch = with_returns(annotate(trainer, batch_for(model), VALUES), 1.0)
    before, first_values = weights(trainer), batch.values_T
    for _ in range(2):
        report = update(trainer, batch, BOTH)
        assert report.applied
        assert report.critic_warmup
        assert report.grad_norm is None
        assert report.learning_rate == 0.0
        assert set(report.losses) == {"policy", "value"}
    assert same(before, weights(trainer))
    assert trainer.version == 0, "nothing new to publish"
    assert not torch.equal(annotate(trainer, batch, VALUES).values_T, first_values)
    report = update(trainer, batch, BOTH)
    assert not report.critic_warmup
    assert report.learning_rate == pytest.approx(1e-3 / 4), "the schedule begins after the critic's warm-up"
    assert not same(before, weights(trainer))


def test_policy_and_critic_are_clipped_each_by_their_own_norm(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic, max_grad_norm=1e-3, critic_detached=True)
    batch = with_returns(annotate(trainer, batch_for(model), VALUES), 100.0)
    caught = kept_gradients(trainer, batch, BOTH)
    for owner in ("policy", "critic"):
        mine = [g.square().sum() for name, g in caught.items() if name.startswith(owner)]
        assert float(torch.stack(mine).sum().sqrt()) == pytest.approx(1e-3, rel=1e-2)


def test_a_policy_without_signal_stands_still_while_its_critic_learns(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic, critic_detached=True, learning_rate=1e-2)
    batch = with_returns(annotate(trainer, batch_for(model), VALUES), 1.0)
    assert update(trainer, batch, BOTH).applied, "now the policy has momentum"
    before = weights(trainer)
    silent = batch.with_columns(advantages_T=torch.zeros_like(batch.advantages_T))
    report = update(trainer, silent, BOTH)
    assert report.applied
    assert report.grad_norm == 0.0
    assert same(before, weights(trainer))


def test_gae_reads_what_a_critic_fills(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic)
    batch = annotate(trainer, ragged_batch(model.vocab_size), VALUES)
    batch = dataclasses.replace(batch, truncated_S=torch.ones_like(batch.truncated_S))
    batch = batch.with_columns(**GAE(bootstrap_truncated=True)(batch))
    assert update(trainer, batch, BOTH).applied
