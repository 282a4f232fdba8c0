"""What every trainer must do. A trainer joins by one more entry in ``TRAINERS``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.tiny import tiny_model
from tests.training import POLICY, ragged_batch, teacher_forced, with_advantages
from trimtab.advantages.gae import GAE
from trimtab.errors import RunError, SettingError
from trimtab.models import LoadedModel
from trimtab.objectives.aggregate import seq_mean_token_mean, token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_ratio, token_ratio
from trimtab.objectives.regularizers import EntropyBonus, ReferenceKL
from trimtab.objectives.surrogate import Clip, SoftGate
from trimtab.objectives.value import ClippedValueLoss
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, StepReport

TEMPERATURE = 0.6
OLD = frozenset({"old_logprobs_T"})

TRAINERS: dict[str, Callable[..., Any]] = {"local": LocalTrainer}


@pytest.fixture(params=TRAINERS)
def build(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a trainer of the kind under test; ``critic="head"`` or "model" gives it one."""
    kind = TRAINERS[request.param]

    def make(model: LoadedModel, *, reference=None, total_updates=None, **settings):
        plain = {"learning_rate": 1e-3, "max_grad_norm": float("inf"), "critic_warmup_updates": 0}
        config = TrainerConfig(**{**plain, **settings})
        return kind(
            model,
            temperature=TEMPERATURE,
            config=config,
            reference=reference,
            critic="critic" in settings,
            seed=5,
            total_updates=total_updates,
        )

    return make


def annotate(trainer: Trainer, batch: Batch, columns: frozenset[str] = OLD) -> Batch:
    return asyncio.run(trainer.annotate(batch, columns))


def update(trainer: Trainer, batch: Batch, objective: Objective = POLICY) -> StepReport:
    return asyncio.run(trainer.update(batch, objective))


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    source, _ = asyncio.run(trainer.publish())
    return {name: tensor.clone() for name, tensor in source}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def double(model: LoadedModel) -> LoadedModel:
    return dataclasses.replace(model, module=model.module.double())


def batch_for(model: LoadedModel, **shape: Any) -> Batch:
    return with_advantages(ragged_batch(model.vocab_size, **shape))


# --------------------------------------------------------------------------------- reading


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


# ------------------------------------------------------------------------------- gradients


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
        )
        batch = prepared(trainer, batch_for(model))
        gradients = kept_gradients(trainer, batch, several_terms())
        found.append(gradients)
    norm = float(torch.stack([gradient.square().sum() for gradient in found[0].values()]).sum().sqrt())
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, gradient in other.items():
            assert float((gradient - found[0][name]).abs().max()) <= tolerance * norm, name


def kept_gradients(trainer: Any, batch: Batch, objective: Objective) -> dict[str, torch.Tensor]:
    """The gradients just before the optimizer step, caught where the step would use them."""
    caught: dict[str, torch.Tensor] = {}

    def catch(*_: Any, **__: Any) -> None:
        for owned in trainer.owners:
            caught.update({f"{owned.name}/{n}": g.clone() for n, g in owned.gradients().items()})

    trainer.optimizer.adamw.register_step_pre_hook(catch)
    assert update(trainer, batch, objective).applied
    return caught


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
    model.module.train()
    trace = update(trainer, batch).trace
    assert trace.ratio_T is not None
    assert float((trace.ratio_T - 1).abs().max()) < 1e-5


def test_masked_sequences_do_not_matter(build):
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
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    assert results[0][1] == pytest.approx(results[1][1], abs=1e-9)
    for name, tensor in results[0][2].items():
        torch.testing.assert_close(tensor, results[1][2][name], rtol=0, atol=1e-9)


# ------------------------------------------------------------------------ updates not made


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
    with torch.no_grad():
        dict(model.module.named_parameters())[name][3, 4] = torch.nan
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
    """A finite loss whose gradient overflows: a weight so large that its slope is infinite."""
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
    model.module.requires_grad_(False)
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


# ---------------------------------------------------------------------------------- critic


VALUE = Objective(((1.0, ClippedValueLoss(None)),), token_mean)
BOTH = Objective((*POLICY.terms, (0.5, ClippedValueLoss(None))), token_mean)
VALUES = frozenset({"old_logprobs_T", "values_T"})


@pytest.fixture(params=["head", "model"])
def critic(request: pytest.FixtureRequest) -> str:
    return request.param


def with_returns(batch: Batch, value: float) -> Batch:
    return batch.with_columns(returns_T=torch.full((batch.num_tokens,), value, dtype=torch.float64))


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


def test_gae_reads_what_a_critic_fills(build, critic):
    model = tiny_model()
    trainer = build(model, critic=critic)
    batch = annotate(trainer, ragged_batch(model.vocab_size), VALUES)
    batch = dataclasses.replace(batch, truncated_S=torch.ones_like(batch.truncated_S))
    batch = batch.with_columns(**GAE(bootstrap_truncated=True)(batch))
    assert update(trainer, batch, BOTH).applied


# --------------------------------------------------------------- publishing, saving, loading


def test_published_weights_load_into_an_engine(build):
    model, served = tiny_model(), tiny_model(seed=3)
    trainer, engine = build(model, learning_rate=1e-2), LocalEngine(served)
    batch = annotate(trainer, batch_for(model))
    for expected in (0, 1):
        source, version = asyncio.run(trainer.publish())
        assert version == expected == trainer.version
        asyncio.run(engine.load_weights(source, version))
        assert engine.version == expected
        mine, _ = teacher_forced(model, batch, 1.0)
        theirs, _ = teacher_forced(served, batch, 1.0)
        assert torch.equal(mine, theirs)
        assert update(trainer, batch).applied


def test_version_rises_with_the_weights_and_not_with_the_calls(build):
    model = tiny_model()
    trainer = build(model)
    batch = annotate(trainer, batch_for(model))
    versions = [asyncio.run(trainer.publish())[1] for _ in range(2)]
    update(trainer, batch)
    update(trainer, batch)
    versions += [asyncio.run(trainer.publish())[1] for _ in range(2)]
    update(trainer, dataclasses.replace(batch, mask_T=torch.zeros_like(batch.mask_T)))
    versions += [asyncio.run(trainer.publish())[1]]
    assert versions == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"critic": "head", "critic_warmup_updates": 2},
        {"critic": "model", "schedule": "cosine", "warmup_updates": 3, "weight_decay": 0.1},
    ],
    ids=["policy", "head", "model"],
)
def test_saved_halves_equal_the_whole_to_the_bit(build, tmp_path, settings):
    def start() -> tuple[Any, Batch]:
        model = tiny_model()
        trainer = build(model, total_updates=6, learning_rate=1e-2, **settings)
        columns = VALUES if settings else OLD
        return trainer, with_returns(annotate(trainer, batch_for(model), columns), 0.5)

    objective = BOTH if settings else POLICY
    whole, batch = start()
    reports = [update(whole, batch, objective) for _ in range(6)]
    first, _ = start()
    for _ in range(3):
        update(first, batch, objective)
    asyncio.run(first.publish())
    asyncio.run(first.save(tmp_path / "half"))
    second, _ = start()
    asyncio.run(second.load(tmp_path / "half"))
    assert second.version == first.version == 1
    again = [update(second, batch, objective) for _ in range(3)]
    for left, right in zip(reports[3:], again, strict=True):
        assert (left.loss, left.grad_norm, left.critic_grad_norm) == (
            right.loss,
            right.grad_norm,
            right.critic_grad_norm,
        )
        assert left.learning_rate == right.learning_rate
        assert torch.equal(left.trace.logprobs_T, right.trace.logprobs_T)
    assert same(weights(whole), weights(second))
    for left, right in zip(whole.owners, second.owners, strict=True):
        assert same(left.everything(), right.everything())
    assert same(whole.optimizer.moments(), second.optimizer.moments())
    assert whole.optimizer.moments()


def test_random_generators_are_part_of_the_state(build, tmp_path):
    trainer = build(tiny_model())
    asyncio.run(trainer.save(tmp_path))
    expected = torch.rand(3)
    torch.rand(7)
    asyncio.run(trainer.load(tmp_path))
    assert torch.equal(torch.rand(3), expected)


def test_a_checkpoint_of_another_model_or_critic_is_refused(build, tmp_path):
    asyncio.run(build(tiny_model()).save(tmp_path))
    with pytest.raises(RunError, match=r"weights of policy, this run of policy and critic"):
        asyncio.run(build(tiny_model(), critic="head").load(tmp_path))
    with pytest.raises(RunError, match="shape"):
        asyncio.run(build(tiny_model(intermediate_size=128)).load(tmp_path))
    with pytest.raises(RunError, match="differ in"):
        asyncio.run(build(tiny_model("gpt2")).load(tmp_path))
    with pytest.raises(RunError, match="another checkpoint"):
        asyncio.run(build(tiny_model()).load(tmp_path / "nowhere"))


def test_weights_that_are_not_finite_are_not_saved(build, tmp_path):
    model = tiny_model()
    trainer = build(model)
    with torch.no_grad():
        model.module.model.norm.weight[0] = torch.inf
    with pytest.raises(RunError, match=r"norm\.weight is not finite"):
        asyncio.run(trainer.save(tmp_path))


def test_the_saved_model_loads_with_transformers(build, tmp_path):
    from transformers import AutoModelForCausalLM

    model = tiny_model()
    trainer = build(model, learning_rate=1e-2)
    update(trainer, annotate(trainer, batch_for(model)))
    asyncio.run(trainer.save(tmp_path))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert same(dict(loaded.named_parameters()), dict(model.module.named_parameters()))


# ---------------------------------------------------------------------------- lower precision


def test_bfloat16_weights_have_float32_masters_that_small_updates_reach(build):
    model = tiny_model()
    model = dataclasses.replace(model, module=model.module.to(torch.bfloat16))
    trainer = build(model, learning_rate=1e-5)
    batch = annotate(trainer, batch_for(model))
    before = weights(trainer)
    for _ in range(3):
        assert update(trainer, batch).applied
    policy = trainer.owners[0]
    masters = policy.everything()
    assert all(master.dtype is torch.float32 for master in masters.values())
    moved = [bool((masters[name] != before[name].float()).any()) for name in masters]
    assert all(moved)
    after = weights(trainer)
    assert all(torch.equal(after[name], masters[name].to(torch.bfloat16)) for name in masters)


def test_autocast_and_recomputed_layers_keep_weights_and_numbers_close(build):
    plain = build(tiny_model())
    batch = annotate(plain, batch_for(tiny_model()))
    wanted = kept_gradients(plain, batch, POLICY)
    again = kept_gradients(build(tiny_model(), gradient_checkpointing=True), batch, POLICY)
    for name, gradient in wanted.items():
        torch.testing.assert_close(again[name], gradient, rtol=0, atol=1e-7)
    half = build(tiny_model(), autocast=True)
    report = update(half, annotate(half, batch))
    assert report.trace.logprobs_T.dtype is torch.float32
    assert all(tensor.dtype is torch.float32 for tensor in weights(half).values())
    torch.testing.assert_close(report.trace.logprobs_T, batch.old_logprobs_T, rtol=0, atol=0.1)
