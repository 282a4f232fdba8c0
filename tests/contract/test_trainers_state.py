"""Publishing, saving and loading of every trainer, to the bit; and lower precision."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
import torch

from tests.tiny import tiny_model
from tests.trainers import (
    BOTH,
    OLD,
    VALUES,
    annotate,
    batch_for,
    drawn,
    held_by,
    kept_gradients,
    masters,
    modes_of_layers,
    moments,
    poison,
    same,
    update,
    weights,
    with_returns,
)
from tests.training import POLICY, teacher_forced
from trimtab.errors import RunError
from trimtab.rollout.local import LocalEngine
from trimtab.types import Batch


def test_published_weights_load_into_an_engine(build):
    model, served = tiny_model(), tiny_model(seed=3)
    trainer, engine = build(model, learning_rate=1e-2), LocalEngine(served)
    batch = annotate(trainer, batch_for(model))
    for expected in (0, 1):
        source, version = asyncio.run(trainer.publish())
        assert version == expected == trainer.version
        asyncio.run(engine.load_weights(source, version))
        assert engine.version == expected
        mine, _ = teacher_forced(held_by(trainer), batch, 1.0)
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
    left, right = masters(whole), masters(second)
    assert left.keys() == right.keys()
    assert all(same(left[owner], right[owner]) for owner in left)
    assert same(moments(whole), moments(second))
    assert moments(whole)


def test_random_generators_are_part_of_the_state(build, tmp_path):
    trainer = build(tiny_model())
    asyncio.run(trainer.save(tmp_path))
    expected = drawn(trainer, 3)
    drawn(trainer, 7)
    asyncio.run(trainer.load(tmp_path))
    assert torch.equal(drawn(trainer, 3), expected)


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
    trainer = build(tiny_model())
    poison(trainer, "model.norm.weight", (0,), torch.inf)
    with pytest.raises(RunError, match=r"norm\.weight is not finite"):
        asyncio.run(trainer.save(tmp_path))


def test_the_saved_model_loads_with_transformers(build, tmp_path):
    from transformers import AutoModelForCausalLM

    model = tiny_model()
    trainer = build(model, learning_rate=1e-2)
    update(trainer, annotate(trainer, batch_for(model)))
    asyncio.run(trainer.save(tmp_path))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert same(dict(loaded.named_parameters()), weights(trainer))


def test_bfloat16_weights_have_float32_masters_that_small_updates_reach(build):
    model = tiny_model()
    model = dataclasses.replace(model, module=model.module.to(torch.bfloat16))
    trainer = build(model, learning_rate=1e-5)
    batch = annotate(trainer, batch_for(model))
    before = weights(trainer)
    for _ in range(3):
        assert update(trainer, batch).applied
    policy = masters(trainer)["policy"]
    assert all(master.dtype is torch.float32 for master in policy.values())
    moved = [bool((policy[name] != before[name].float()).any()) for name in policy]
    assert all(moved)
    after = weights(trainer)
    assert all(torch.equal(after[name], policy[name].to(torch.bfloat16)) for name in policy)


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


def test_bfloat16_gradients_add_up_over_micro_batches_like_those_of_float32(build):
    rounded = tiny_model()
    rounded.module.to(torch.bfloat16).to(torch.float32)
    batch = annotate(build(rounded), batch_for(rounded))
    wanted = kept_gradients(build(rounded), batch, POLICY)
    low = tiny_model()
    low = dataclasses.replace(low, module=low.module.to(torch.bfloat16))
    got = kept_gradients(build(low, tokens_per_micro_batch=1), batch, POLICY)
    norm = torch.stack([gradient.square().sum() for gradient in wanted.values()]).sum().sqrt()
    off = torch.stack([(got[name] - wanted[name]).square().sum() for name in wanted]).sum().sqrt()
    assert float(off / norm) < 0.1


def test_bfloat16_state_comes_back_with_its_masters(build, tmp_path):
    def start() -> Any:
        model = tiny_model()
        return build(dataclasses.replace(model, module=model.module.to(torch.bfloat16)), learning_rate=1e-4)

    first, second = start(), start()
    batch = annotate(first, batch_for(tiny_model()))
    update(first, batch)
    asyncio.run(first.save(tmp_path))
    asyncio.run(second.load(tmp_path))
    assert same(weights(first), weights(second))
    assert same(masters(first)["policy"], masters(second)["policy"])
    assert update(first, batch).grad_norm == update(second, batch).grad_norm


def test_recomputed_layers_run_without_dropout_and_are_left_as_they_were(build):
    model = tiny_model()
    trainer = build(model, gradient_checkpointing=True)
    modes, left = modes_of_layers(trainer, annotate(trainer, batch_for(model)))
    layers = len(model.module.model.layers)
    assert modes == [False] * 2 * layers, "each layer runs twice, never in training mode"
    assert not any(left)
