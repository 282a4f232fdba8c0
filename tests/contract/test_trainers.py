"""What every trainer reads, and how its updates come out whatever the micro-batches."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from tests.tiny import tiny_model
from tests.trainers import (
    TEMPERATURE,
    annotate,
    batch_for,
    kept_gradients,
    same,
    to_training,
    update,
    weights,
)
from tests.training import ragged_batch, teacher_forced
from trimtab.errors import SettingError
from trimtab.models import LoadedModel
from trimtab.objectives.aggregate import seq_mean_token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_ratio
from trimtab.objectives.regularizers import EntropyBonus, ReferenceKL
from trimtab.objectives.surrogate import Clip
from trimtab.objectives.value import ClippedValueLoss
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch


@pytest.mark.parametrize("arch", ["qwen3", "llama", "gpt2", "gemma2"])
def test_old_logprobs_and_entropy_equal_one_sequence_at_a_time(build, arch):
    model = tiny_model(arch, extra_rows=3)
    batch = batch_for(model, answers=((5, 0, 9), (2, 7), (4, 12)))
    logprobs, entropy = teacher_forced(model, batch, TEMPERATURE)
    trainer = build(model, tokens_per_micro_batch=40, learning_rate=0.0)
    annotated = annotate(trainer, batch)
    torch.testing.assert_close(annotated.old_logprobs_T.double(), logprobs, rtol=0, atol=1e-5)
    trace = update(trainer, annotated).trace
    assert trace.logprobs_T is not None
    assert trace.entropy_T is not None
    torch.testing.assert_close(trace.logprobs_T.double(), logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(trace.entropy_T.double(), entropy, rtol=0, atol=1e-5)


def test_ratio_is_one_on_untouched_weights_and_only_at_the_right_temperature(build):
    model = tiny_model()
    batch = batch_for(model)
    right, _ = teacher_forced(model, batch, TEMPERATURE)
    wrong, _ = teacher_forced(model, batch, 1.0)
    trainer = build(model, learning_rate=0.0)
    for old, close in ((right, True), (wrong, False)):
        trace = update(trainer, batch.with_columns(old_logprobs_T=old.float())).trace
        assert trace.ratio_T is not None
        assert bool(((trace.ratio_T - 1).abs() < 1e-5).all()) == close


def test_trace_is_in_the_order_of_the_batch_whatever_the_micro_batches(build):
    model = tiny_model()
    batch = annotate(build(model), batch_for(model))
    one = update(build(copy.deepcopy(model), learning_rate=0.0), batch).trace
    many = update(build(model, learning_rate=0.0, tokens_per_micro_batch=1), batch).trace
    for name in ("logprobs_T", "entropy_T", "ratio_T", "gate_T", "clamped_T"):
        left, right = getattr(one, name), getattr(many, name)
        assert left.shape == right.shape == (batch.num_tokens,)
        torch.testing.assert_close(left.double(), right.double(), rtol=0, atol=2e-6)
    assert one.kl_T is None, "what the objective does not have is absent"


def test_annotate_fills_what_is_asked_for_and_nothing_else(build):
    model, reference = tiny_model(), tiny_model(seed=9)
    batch = ragged_batch(model.vocab_size, answers=((5, 0), (3,), (1, 1)))
    trainer = build(model, reference=reference, critic="head")
    columns = frozenset({"old_logprobs_T", "ref_logprobs_T", "values_T"})
    full = annotate(trainer, batch, columns)
    assert set(full.columns) == columns | {"bootstrap_S"}
    assert set(annotate(trainer, batch, frozenset({"ref_logprobs_T"})).columns) == {"ref_logprobs_T"}
    assert not any(column.requires_grad for column in full.columns.values())
    logprobs, _ = teacher_forced(reference, batch, TEMPERATURE)
    torch.testing.assert_close(full.ref_logprobs_T.double(), logprobs, rtol=0, atol=1e-5)


def test_annotate_says_what_it_cannot_fill(build):
    model = tiny_model()
    batch = ragged_batch(model.vocab_size)
    with pytest.raises(SettingError, match="reference"):
        annotate(build(model), batch, frozenset({"ref_logprobs_T"}))
    with pytest.raises(SettingError, match="critic"):
        annotate(build(model), batch, frozenset({"values_T"}))
    with pytest.raises(SettingError, match="did you mean 'values_T'"):
        annotate(build(model), batch, frozenset({"value_T"}))


def double(model: LoadedModel) -> LoadedModel:
    return dataclasses.replace(model, module=model.module.double())


def several_terms() -> Objective:
    return Objective(
        (
            (1.0, PolicyGradient(sequence_ratio, Clip(0.1, 0.1))),
            (0.3, ReferenceKL()),
            (0.02, EntropyBonus()),
            (0.5, ClippedValueLoss(0.2)),
        ),
        seq_mean_token_mean,
    )


def prepared(trainer: Trainer, batch: Batch) -> Batch:
    """Every column, old log-probabilities a little off so that ratios differ from 1."""
    batch = annotate(trainer, batch, frozenset({"old_logprobs_T", "ref_logprobs_T", "values_T"}))
    noise = 0.1 * torch.randn(batch.num_tokens, generator=torch.Generator().manual_seed(2))
    batch = batch.with_columns(old_logprobs_T=batch.old_logprobs_T + noise)
    return batch.with_columns(returns_T=batch.rewards_S[batch.seq_T])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
@pytest.mark.parametrize("critic", ["head", "model"])
def test_gradients_do_not_depend_on_the_size_of_micro_batches(build, dtype, tolerance, critic):
    found = []
    for budget in (1, 30, 10_000):
        model, reference = tiny_model(), tiny_model(seed=9)
        if dtype is torch.float64:
            model, reference = double(model), double(reference)
        trainer = build(
            model,
            reference=reference,
            critic=critic,
            tokens_per_micro_batch=budget,
            # norms compute in float32 whatever the dtype, so other sums round otherwise there
            share_prompts="auto" if dtype is torch.float32 else "never",
        )
        batch = prepared(trainer, batch_for(model))
        gradients = kept_gradients(trainer, batch, several_terms())
        found.append(gradients)
    norm = float(torch.stack([gradient.square().sum() for gradient in found[0].values()]).sum().sqrt())
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, gradient in other.items():
            assert float((gradient - found[0][name]).abs().max()) <= tolerance * norm, name


def test_learning_reduces_the_loss_it_is_given(build):
    """Cross-entropy as a policy gradient: with advantage 1 and ratio 1, answers become more likely."""
    model = tiny_model()
    trainer = build(model, learning_rate=3e-3)
    batch = ragged_batch(model.vocab_size)
    batch = batch.with_columns(advantages_T=torch.ones(batch.num_tokens, dtype=torch.float64))
    likely = []
    for _ in range(12):
        trace = update(trainer, annotate(trainer, batch)).trace
        assert trace.logprobs_T is not None
        likely.append(float(trace.logprobs_T.mean()))
    assert likely[-1] > likely[0] + 1.0


def test_learning_rate_zero_leaves_every_bit(build):
    model = tiny_model()
    trainer = build(model, learning_rate=0.0, weight_decay=0.1)
    before = weights(trainer)
    batch = annotate(trainer, batch_for(model))
    norms = [update(trainer, batch).grad_norm for _ in range(5)]
    assert same(before, weights(trainer))
    assert len(set(norms)) == 1
    assert norms[0] is not None
    assert norms[0] > 0.0


def test_dropout_never_acts(build):
    model = tiny_model("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    trainer = build(model, learning_rate=0.0)
    batch = annotate(trainer, batch_for(model))
    to_training(trainer)
    trace = update(trainer, batch).trace
    assert trace.ratio_T is not None
    assert float((trace.ratio_T - 1).abs().max()) < 1e-5


def test_masked_sequences_do_not_matter(build, request: pytest.FixtureRequest):
    """Masking an answer and leaving it out move the weights alike, and what stands there is never read."""
    batch = batch_for(tiny_model())
    batch = annotate(build(tiny_model()), batch)
    gone = 2
    keep = [s for s in range(batch.num_sequences) if s != gone]
    masked_T = batch.seq_T == gone
    masked = dataclasses.replace(batch, mask_T=~masked_T)
    masked = masked.with_columns(
        old_logprobs_T=batch.old_logprobs_T.masked_fill(masked_T, torch.nan),
        advantages_T=batch.advantages_T.masked_fill(masked_T, torch.nan),
    )
    results = []
    for given in (batch.select(keep), masked):
        trainer = build(tiny_model(), tokens_per_micro_batch=1)
        report = update(trainer, given)
        results.append((report.loss, report.grad_norm, weights(trainer)))
    several = "2" in request.node.callspec.params["build"]  # ranks add in another order
    loss, norm, weight = (1e-7, 1e-6, 1e-6) if several else (1e-12, 1e-9, 1e-9)
    assert results[0][0] == pytest.approx(results[1][0], abs=loss)
    assert results[0][1] == pytest.approx(results[1][1], abs=norm)
    for name, tensor in results[0][2].items():
        torch.testing.assert_close(tensor, results[1][2][name], rtol=0, atol=weight)
