"""Updates that a trainer must not make: masked, silent, or not finite."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.tiny import tiny_model
from tests.trainers import (
    annotate,
    batch_for,
    freeze,
    kept_gradients,
    poison,
    same,
    update,
    weights,
)
from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.errors import RunError
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.regularizers import EntropyBonus
from trimtab.objectives.surrogate import Clip, SoftGate


def test_an_update_with_every_token_masked_makes_no_step(build):
    model = tiny_model()
    trainer = build(model, learning_rate=1e-2, weight_decay=0.1, warmup_updates=10)
    batch = annotate(trainer, batch_for(model))
    first = update(trainer, batch)
    before = weights(trainer)
    masked = dataclasses.replace(batch, mask_T=torch.zeros_like(batch.mask_T))
    report = update(trainer, masked)
    assert not report.applied
    assert report.skip_reason == "every token of the update is masked"
    assert report.loss == 0.0
    assert same(before, weights(trainer))
    after = update(trainer, batch)
    assert after.learning_rate == pytest.approx(2 * first.learning_rate), "a skipped update does not count"


def test_an_update_without_signal_makes_no_step(build):
    """All advantages 0: momentum of earlier updates must not move the weights."""
    model = tiny_model()
    trainer = build(model, learning_rate=1e-2)
    batch = annotate(trainer, batch_for(model))
    assert update(trainer, batch).applied
    before = weights(trainer)
    silent = batch.with_columns(advantages_T=torch.zeros_like(batch.advantages_T))
    report = update(trainer, silent)
    assert not report.applied
    assert report.grad_norm == 0.0
    assert "exactly zero" in (report.skip_reason or "")
    assert same(before, weights(trainer))


def test_an_empty_batch_makes_no_step(build):
    model = tiny_model()
    trainer = build(model)
    empty = ragged_batch(model.vocab_size, answers=((0, 0), (0,), (0,)))
    batch = annotate(trainer, with_advantages(empty))
    assert update(trainer, batch).skip_reason == "the update has no token"


def test_nan_in_a_weight_stops_the_run_and_names_weight_and_rollouts(build):
    model = tiny_model()
    trainer = build(model)
    batch = annotate(trainer, batch_for(model))
    name = "model.layers.1.mlp.up_proj.weight"
    poison(trainer, name, (3, 4))
    before = weights(trainer)
    with pytest.raises(RunError, match=name.replace(".", r"\.")) as caught:
        update(trainer, batch)
    assert batch.keys_S[0] in str(caught.value)
    after = weights(trainer)
    assert all(torch.equal(before[n], after[n]) for n in before if n != name)


def test_nan_in_a_column_names_the_column_and_its_rollout_alone(build):
    model = tiny_model()
    trainer = build(model)
    batch = annotate(trainer, batch_for(model))
    old = batch.old_logprobs_T.clone()
    old[batch.seq_T == 3] = torch.nan
    with pytest.raises(RunError, match="old_logprobs_T") as caught:
        update(trainer, batch.with_columns(old_logprobs_T=old))
    assert batch.keys_S[3] in str(caught.value)
    assert batch.keys_S[2] not in str(caught.value)


def test_a_gradient_that_is_not_finite_is_traced_to_its_micro_batch(build):
    """A finite loss whose gradient overflows: a weight so large that its slope is infinite.

    On the plain path: how large that must be depends on the order of products.
    """
    model = tiny_model()
    trainer = build(model, tokens_per_micro_batch=1)
    batch = annotate(trainer, batch_for(model))
    weights_T = POLICY.aggregate(batch)
    weights_T[batch.seq_T == 4] = 1e38
    advantages_T = torch.where(batch.seq_T == 4, 0.3, batch.advantages_T)
    before = weights(trainer)
    with pytest.raises(RunError, match="gradient of the policy's") as caught:
        update(trainer, batch.with_columns(weights_T=weights_T, advantages_T=advantages_T))
    assert batch.keys_S[4] in str(caught.value)
    assert batch.keys_S[0] not in str(caught.value)
    assert same(before, weights(trainer))


def test_updates_that_are_not_finite_may_be_skipped_but_only_so_many_in_a_row(build):
    model = tiny_model()
    trainer = build(model, max_nonfinite_skips=2)
    good = annotate(trainer, batch_for(model))
    bad = good.with_columns(advantages_T=torch.full_like(good.advantages_T, torch.nan))
    for batch, applied in ((bad, False), (bad, False), (good, True), (bad, False), (bad, False)):
        report = update(trainer, batch)
        assert report.applied == applied
        assert applied or "advantages_T" in (report.skip_reason or "")
    with pytest.raises(RunError, match="advantages_T"):
        update(trainer, bad)


def test_frozen_weights_are_reported_instead_of_trained(build):
    model = tiny_model()
    trainer = build(model)
    batch = annotate(trainer, batch_for(model))
    freeze(trainer)
    with pytest.raises(RunError, match="no weight got a gradient"):
        update(trainer, batch)


@pytest.mark.parametrize("surrogate", [Clip(0.2, 0.28), SoftGate()])
def test_leaving_out_silent_answers_changes_no_gradient(build, surrogate):
    objective = Objective(((1.0, PolicyGradient(token_ratio, surrogate)),), token_mean)
    found = []
    for skip in (False, True):
        trainer = build(tiny_model(), skip_silent=skip)
        batch = annotate(trainer, batch_for(tiny_model()))
        silent_T = (batch.seq_T == 0) | (batch.seq_T == 4)
        batch = batch.with_columns(advantages_T=batch.advantages_T.masked_fill(silent_T, 0.0))
        gradients = kept_gradients(trainer, batch, objective)
        found.append(gradients)
        trace = update(trainer, batch, objective).trace
        assert trace.ratio_T is not None
        assert bool((trace.ratio_T.isnan() == (silent_T & skip)).all())
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=0, atol=1e-7)


def test_answers_are_not_silent_under_other_terms(build):
    objective = Objective((*POLICY.terms, (0.1, EntropyBonus())), token_mean)
    trainer = build(tiny_model(), skip_silent=True)
    batch = annotate(trainer, batch_for(tiny_model()))
    batch = batch.with_columns(advantages_T=torch.zeros_like(batch.advantages_T))
    report = update(trainer, batch, objective)
    assert report.applied
    assert report.trace.ratio_T is not None
    assert not bool(report.trace.ratio_T.isnan().any())
