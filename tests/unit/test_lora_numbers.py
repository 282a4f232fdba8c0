"""Adapters: gradients against a dense weight by hand, precision, and what an engine samples from."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest
import torch
from torch.func import functional_call

from tests.adapted import LORA, lowered, stir, trainer_of
from tests.tiny import tiny_model
from tests.trainers import TEMPERATURE, annotate, batch_for, kept_gradients, masters, same, update, weights
from tests.training import POLICY, teacher_forced
from trimtab.errors import RunError
from trimtab.models.lora import (
    LoraLinear,
    adapters_off,
    fingerprint,
    merged,
)
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch, ModelOutput


def dense_gradients(trainer: LocalTrainer, batch: Batch) -> dict[str, torch.Tensor]:
    """In float64 with one dense weight a layer, W + s B A:  dA = s B^T dW,  dB = s dW A^T."""
    plain = tiny_model().module.double()
    added = {name: tensor.double() for name, tensor in masters(trainer)["policy"].items()}
    layers = [name.removesuffix(".lora_A") for name in added if name.endswith("lora_A")]
    dense = {name: p.detach() for name, p in plain.named_parameters()}
    for layer in layers:
        product = added[f"{layer}.lora_B"] @ added[f"{layer}.lora_A"]
        dense[f"{layer}.weight"] = (dense[f"{layer}.weight"] + 2.0 * product).requires_grad_()
    found = []
    for s in range(batch.num_sequences):
        prompt, answer = batch.prompts_P[int(batch.group_S[s])], batch.token_ids_T[batch.seq_T == s]
        ids = torch.cat([prompt, answer])[None]
        logits = functional_call(plain, dense, (ids,), {"use_cache": False}).logits[0, len(prompt) - 1 : -1]
        found.append(torch.log_softmax(logits / TEMPERATURE, -1).gather(-1, answer[:, None])[:, 0])
    out = ModelOutput(logprobs_T=torch.cat(found), entropy_T=torch.zeros(len(batch.mask_T)))
    loss = sum(POLICY(out, batch)[0].values(), torch.zeros(()))
    wanted = [f"{layer}.weight" for layer in layers]
    slopes = torch.autograd.grad(loss, [dense[name] for name in wanted])
    gradients = {}
    for layer, slope in zip(layers, slopes, strict=True):
        gradients[f"policy/{layer}.lora_A"] = 2.0 * added[f"{layer}.lora_B"].T @ slope
        gradients[f"policy/{layer}.lora_B"] = 2.0 * slope @ added[f"{layer}.lora_A"].T
    return gradients


@pytest.mark.parametrize("fast", ["never", "always"])
@pytest.mark.parametrize("again", [False, True], ids=["kept", "computed again"])
def test_gradients_are_those_of_a_dense_weight(fast, again):
    trainer = trainer_of(tiny_model(), fast=fast, gradient_checkpointing=again)
    assert (trainer.reader.decoder is not None) == (fast == "always")
    batch = annotate(trainer, batch_for(tiny_model()))  # of B = 0: ratios are not 1 below
    stir(trainer)
    batch = POLICY.weighted(batch)
    expected = dense_gradients(trainer, batch)
    found = kept_gradients(trainer, batch, POLICY)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        size = float(gradient.abs().max())
        assert size > 1e-6, name
        torch.testing.assert_close(found[name].double(), gradient, rtol=0, atol=2e-5 * size + 1e-8)


def test_updates_of_packed_passes_are_those_of_the_modules():
    pair = [trainer_of(tiny_model(), fast=fast, learning_rate=1e-3) for fast in ("never", "always")]
    for trainer in pair:
        batch = annotate(trainer, batch_for(tiny_model()))
        for _ in range(3):
            assert update(trainer, batch).applied
    left, right = (masters(trainer)["policy"] for trainer in pair)
    for name, tensor in left.items():
        torch.testing.assert_close(right[name], tensor, rtol=0, atol=1e-6)


def test_the_base_is_never_written_to():
    model = tiny_model()
    before = fingerprint(model.module)
    trainer = trainer_of(model)
    batch = annotate(trainer, batch_for(model))
    for _ in range(3):
        assert update(trainer, batch).applied
    assert fingerprint(model.module) == before
    for name, parameter in tiny_model().module.named_parameters():
        assert torch.equal(dict(model.module.named_parameters())[name], parameter)
    base, _ = teacher_forced(tiny_model(), batch, 1.0)
    with adapters_off(model.module):
        off, _ = teacher_forced(model, batch, 1.0)
    on, _ = teacher_forced(model, batch, 1.0)
    assert torch.equal(off, base)
    assert float((on - base).abs().max()) > 1e-2


def test_a_merged_weight_is_the_same_function():
    base = torch.nn.Linear(7, 5)
    layer = LoraLinear(base, LORA, torch.Generator().manual_seed(0))
    torch.nn.init.normal_(layer.lora_B)
    x = torch.randn(4, 7)
    whole = merged(layer.weight, layer.lora_A, layer.lora_B, layer.scale)
    expected = base.weight.double() + 2.0 * layer.lora_B.double() @ layer.lora_A.double()
    torch.testing.assert_close(whole.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, whole, base.bias), rtol=0, atol=1e-5)


def test_a_bfloat16_base_has_float32_masters_and_publishes_bfloat16():
    model, start = lowered(), dict(lowered().module.named_parameters())
    trainer = trainer_of(model, learning_rate=1e-5)
    batch = annotate(trainer, batch_for(model))
    first = {name: tensor.clone() for name, tensor in masters(trainer)["policy"].items()}
    assert same(weights(trainer), {name: p.detach() for name, p in start.items()})
    assert update(trainer, batch).applied
    now = masters(trainer)["policy"]
    assert all(tensor.dtype is torch.float32 for tensor in now.values())
    moved = [
        float((now[name] - tensor).detach().abs().max()) for name, tensor in first.items() if "lora_B" in name
    ]
    assert all(size == pytest.approx(1e-5, rel=1e-3) for size in moved), "a step that bfloat16 of 0.1 lacks"
    assert all(tensor.dtype is torch.bfloat16 for tensor in weights(trainer).values())


def test_autocast_trains_adapters_close_to_float32():
    gradients = []
    for autocast in (False, True):
        trainer = trainer_of(tiny_model(), autocast=autocast)
        batch = annotate(trainer_of(tiny_model()), batch_for(tiny_model()))
        stir(trainer)
        gradients.append(kept_gradients(trainer, POLICY.weighted(batch), POLICY))
    exact, low = gradients
    off = sum(float((exact[name] - low[name]).square().sum()) for name in exact)
    share = (off / sum(float(g.square().sum()) for g in exact.values())) ** 0.5
    assert 1e-5 < share < 0.2


@pytest.mark.parametrize("fast", ["never", "always"])
def test_an_engine_on_the_trainers_own_module_samples_the_newest_policy(fast):
    model = tiny_model()
    trainer, engine = trainer_of(model), LocalEngine(model, fast=fast)
    batch = annotate(trainer, batch_for(model))
    for version in range(3):
        source, published = asyncio.run(trainer.publish())
        asyncio.run(engine.load_weights(source, published))
        assert engine.version == version
        check_sampled(engine, trainer)
        assert update(trainer, batch).applied
    foreign = list(tiny_model(seed=2).module.named_parameters())
    with pytest.raises(RunError, match="give the engine a model of its own"):
        asyncio.run(engine.load_weights(foreign, 9))


def check_sampled(engine: LocalEngine, trainer: LocalTrainer) -> None:
    """What was sampled has the log-probabilities of a plain model with the published weights."""
    from tests.contract.test_engines import draws_of, sample
    from trimtab.rollout.engine import Sampling

    plain = tiny_model(seed=4)
    plain.module.load_state_dict(weights(trainer), strict=False)
    sampling = Sampling(max_new_tokens=8, temperature=TEMPERATURE)
    for group in sample(engine, draws_of(["1+2", "3 times 4"]), n=2, sampling=sampling):
        prompt = torch.as_tensor(group.draw.prompt.token_ids)
        for rollout in group.rollouts:
            answer = torch.as_tensor(rollout.token_ids)
            with torch.no_grad():
                logits = plain.module(torch.cat([prompt, answer])[None], use_cache=False).logits[0]
            z = logits[len(prompt) - 1 : -1, : plain.vocab_size].double() / TEMPERATURE
            expected = torch.log_softmax(z, -1).gather(-1, answer[:, None])[:, 0]
            found = torch.as_tensor(rollout.logprobs).double()
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
