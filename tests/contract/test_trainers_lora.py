"""Adapters in every trainer: what is trained, what is published, what is kept, and over how many ranks."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.ranks import Spread, spawned
from tests.sharded_cases import KL, LOW, REFERENCE, Case, apart, low, trained
from tests.tiny import tiny_model
from tests.trainers import (
    BOTH,
    OLD,
    TEMPERATURE,
    VALUES,
    annotate,
    batch_for,
    held_by,
    masters,
    moments,
    same,
    update,
    weights,
)
from tests.training import teacher_forced
from trimtab.errors import RunError
from trimtab.models.lora import LoraConfig
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.local import LocalTrainer

LORA = LoraConfig(rank=4, alpha=8.0)
BASE = dict(tiny_model().module.named_parameters())


def by_hand(trainer: Any, config: LoraConfig = LORA) -> dict[str, torch.Tensor]:
    """The base's weights, with alpha / rank * B A in float64 where there is an adapter."""
    found = {name: tensor.detach().clone() for name, tensor in BASE.items()}
    added = masters(trainer)["policy"]
    for name in added:
        if name.endswith(".lora_A"):
            a, b = added[name].double(), added[f"{name[:-1]}B"].double()
            layer = f"{name.removesuffix('.lora_A')}.weight"
            found[layer] = (found[layer].double() + config.alpha / config.rank * b @ a).float()
    return found


def test_the_first_policy_is_the_base_to_the_bit(build):
    trainer = build(tiny_model(), lora=LORA)
    assert same(weights(trainer), {name: tensor.detach() for name, tensor in BASE.items()})
    batch = annotate(trainer, batch_for(tiny_model()), REFERENCE)
    assert torch.equal(batch.old_logprobs_T, batch.ref_logprobs_T)
    plain = annotate(build(tiny_model()), batch_for(tiny_model()))
    torch.testing.assert_close(batch.old_logprobs_T, plain.old_logprobs_T, rtol=0, atol=1e-5)


def test_only_adapters_are_trained_and_the_product_is_what_an_engine_gets(build):
    trainer = build(tiny_model(), lora=LORA, learning_rate=1e-2)
    batch = annotate(trainer, batch_for(tiny_model()))
    for _ in range(3):
        assert update(trainer, batch).applied
    assert all(name.endswith((".lora_A", ".lora_B")) for name in masters(trainer)["policy"])
    assert len(masters(trainer)["policy"]) == 2 * 2 * 7, "A and B of seven layers in both blocks"
    published = weights(trainer)
    assert list(published) == list(BASE)
    for name, expected in by_hand(trainer).items():
        torch.testing.assert_close(published[name], expected, rtol=0, atol=1e-7)
        adapted = "_proj" in name
        assert torch.equal(published[name], BASE[name]) != adapted, name
    engine = LocalEngine(tiny_model(seed=3))
    asyncio.run(engine.load_weights(list(published.items()), 1))
    served, _ = teacher_forced(engine.model, batch, TEMPERATURE)
    mine = annotate(trainer, batch_for(tiny_model())).old_logprobs_T
    torch.testing.assert_close(mine.double(), served, rtol=0, atol=1e-5)


def test_the_reference_is_the_base_whatever_the_adapters_have_become(build):
    trainer = build(tiny_model(), lora=LORA, learning_rate=1e-2)
    batch = annotate(trainer, batch_for(tiny_model()), REFERENCE)
    for _ in range(3):
        assert update(trainer, batch, KL).applied
    again = annotate(trainer, batch_for(tiny_model()), REFERENCE)
    base, _ = teacher_forced(tiny_model(), batch, TEMPERATURE)
    torch.testing.assert_close(again.ref_logprobs_T.double(), base, rtol=0, atol=1e-5)
    assert torch.equal(again.ref_logprobs_T, batch.ref_logprobs_T)
    policy, _ = teacher_forced(held_by(trainer), batch, TEMPERATURE)
    torch.testing.assert_close(again.old_logprobs_T.double(), policy, rtol=0, atol=1e-5)
    assert float((again.old_logprobs_T - again.ref_logprobs_T).abs().max()) > 1e-2


def test_a_reference_of_its_own_is_read_where_one_is_given(build):
    other = tiny_model(seed=9)
    trainer = build(tiny_model(), lora=LORA, reference=other)
    batch = annotate(trainer, batch_for(tiny_model()), REFERENCE)
    expected, _ = teacher_forced(tiny_model(seed=9), batch, TEMPERATURE)
    torch.testing.assert_close(batch.ref_logprobs_T.double(), expected, rtol=0, atol=1e-5)


def test_a_checkpoint_holds_adapters_alone_and_gives_them_back_to_the_bit(build, tmp_path: Path):
    trainer = build(tiny_model(), lora=LORA, learning_rate=1e-2)
    batch = annotate(trainer, batch_for(tiny_model()))
    for _ in range(2):
        update(trainer, batch)
    asyncio.run(trainer.save(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "trainer"]
    for file in (tmp_path / "trainer").glob("policy*.safetensors"):
        assert all("lora_" in name for name in load_file(file))
    other = build(tiny_model(), lora=LORA, learning_rate=1e-2)
    update(other, batch)
    asyncio.run(other.load(tmp_path))
    for _ in range(2):
        for one in (trainer, other):
            assert update(one, batch).applied
    assert same(masters(trainer)["policy"], masters(other)["policy"])
    assert same(moments(trainer), moments(other))


@pytest.mark.parametrize(
    ("model", "lora", "says"),
    [
        ({"seed": 1}, LORA, "the frozen weights are not those"),
        ({}, LoraConfig(rank=2, alpha=8.0), r"model\.lora\.rank = 4, this run has 2"),
        ({}, LoraConfig(rank=4, alpha=8.0, targets=("q_proj",)), r"model\.lora\.targets = 'all-linear'"),
        ({}, None, "a run that trains adapters, this one trains all weights"),
    ],
)
def test_adapters_are_taken_back_only_where_they_mean_the_same(build, tmp_path: Path, model, lora, says):
    asyncio.run(build(tiny_model(), lora=LORA).save(tmp_path))
    other = build(tiny_model(**model), lora=lora)
    before = masters(other)["policy"]
    before = {name: tensor.detach().clone() for name, tensor in before.items()}
    with pytest.raises(RunError, match=says):
        asyncio.run(other.load(tmp_path))
    assert same(masters(other)["policy"], before)


def test_a_checkpoint_of_all_weights_is_refused_by_adapters(build, tmp_path: Path):
    asyncio.run(build(tiny_model()).save(tmp_path))
    with pytest.raises(RunError, match="trains all weights, this one trains adapters"):
        asyncio.run(build(tiny_model(), lora=LORA).load(tmp_path))


# ------------------------------------------------------------------------------ over ranks

CASES = {
    "policy": Case(lora=LORA, settings={"learning_rate": 1e-2}),
    "layers computed again": Case(lora=LORA, settings={"gradient_checkpointing": True}),
    "reference and entropy": Case(lora=LORA, objective=KL, columns=REFERENCE),
    "critic head": Case(lora=LORA, settings={"critic": "head"}, objective=BOTH, columns=VALUES),
    "bfloat16 base": Case(lora=LORA, model=lambda: low(tiny_model()), tolerance=LOW),
    "critic model": Case(lora=LORA, settings={"critic": "model"}, objective=BOTH, columns=VALUES),
}
SIZES = [*((name, 2) for name in CASES), ("policy", 3), ("reference and entropy", 3)]


def over(case: Case, size: int) -> Any:
    if size == 0:
        return case.built(LocalTrainer)
    return case.built(lambda model, **settings: Spread(spawned(size), model, **settings))


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_ten_updates_of_adapters_are_those_of_the_single_process(name: str, size: int):
    case = CASES[name]
    first = {key: t.detach().clone() for key, t in masters(over(case, 0))["policy"].items()}
    alone, spread = trained(case, over(case, 0)), trained(case, over(case, size))
    assert alone.weights["policy"].keys() == first.keys()
    assert apart(alone, spread) <= case.tolerance
    assert {tensor.dtype for tensor in spread.weights["policy"].values()} == {torch.float32}
    moved = [float((spread.weights["policy"][key] - t).abs().max()) for key, t in first.items()]
    assert min(moved) > max(1e-3, case.tolerance), "every A and B has moved more than they may differ"


@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 0), (2, 3)])
def test_any_number_of_ranks_reads_adapters_that_any_other_wrote(tmp_path: Path, source: int, target: int):
    case = CASES["policy"]
    owner, reader = over(case, source), over(case, target)
    batch = annotate(owner, case.batch(), OLD)
    for _ in range(3):
        assert update(owner, batch).applied
    asyncio.run(owner.save(tmp_path))
    asyncio.run(reader.load(tmp_path))
    assert same(masters(owner)["policy"], masters(reader)["policy"])
    assert same(moments(owner), moments(reader))
    for trainer in (owner, reader):
        assert update(trainer, batch).applied
    mine, theirs = weights(owner), weights(reader)
    for name, tensor in mine.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=1e-6)


def test_ranks_write_the_adapter_that_the_single_process_writes(tmp_path: Path):
    for size in (0, 2):
        asyncio.run(over(CASES["policy"], size).save(tmp_path / str(size)))
    left, right = (tmp_path / str(size) / "adapter" for size in (0, 2))
    assert same(*(load_file(folder / "adapter_model.safetensors") for folder in (left, right)))
    told = [json.loads((folder / "adapter_config.json").read_text()) for folder in (left, right)]
    assert told[0] == told[1]


def test_each_rank_holds_its_part_of_the_base(tmp_path: Path):
    pair = over(CASES["policy"], 2)
    held = pair.ranks.run(frozen_elements, pair.number)
    whole = sum(tensor.numel() for tensor in BASE.values())
    assert sum(held) == whole
    assert max(held) < 0.52 * whole


def frozen_elements(place: Any, number: int) -> int:
    from trimtab.trainer.sharded_model import local_of

    module = place.trainers[number].model.module
    return sum(local_of(p).numel() for p in module.parameters() if not p.requires_grad)
