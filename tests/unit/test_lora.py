"""Adapters: settings, which layers get them, and files that peft reads."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.adapted import LORA, lowered, stir, trainer_of
from tests.tiny import tiny_model
from tests.trainers import masters, same, weights
from trimtab.config import run_from_dict
from trimtab.config.arguments import reference_path, trainer_arguments
from trimtab.errors import RunError, SettingError
from trimtab.models.adapter_files import merge_adapter
from trimtab.models.lora import (
    LoraConfig,
    add_adapters,
    find_targets,
)
from trimtab.planning.shape import read_shape

# ------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"rank": 0}, r"model\.lora\.rank must be >= 1, got 0"),
        ({"rank": 2, "alpha": 0.0}, r"model\.lora\.alpha must be a number > 0"),
        ({"rank": 2, "alpha": math.inf}, r"model\.lora\.alpha must be a number > 0"),
        ({"rank": 2, "scaling": "root-rang"}, "must be one of 'rank' or 'root-rank'"),
        ({"rank": 2, "dropout": 0.1}, "would come from different functions"),
        ({"rank": 2, "targets": "q_proj"}, r'write \["q_proj"\]'),
        ({"rank": 2, "targets": []}, "names no layer"),
        ({}, r"model\.lora"),
        ({"rank": 2, "alhpa": 4.0}, "alpha"),
    ],
)
def test_settings_that_cannot_be_are_refused(table, says):
    with pytest.raises(SettingError, match=says):
        run_from_dict({"model": {"path": "nowhere", "lora": table}, "algorithm": {"name": "grpo"}})


def test_a_recipe_reaches_the_trainer_and_loads_no_second_model():
    tree = {
        "data": {"task": "sums"},
        "model": {"path": "nowhere", "lora": {"rank": 2, "targets": ["q_proj", "mlp.up_proj"]}},
        "algorithm": {"name": "grpo", "kl_coef": 0.1},
    }
    run = run_from_dict(tree)
    expected = LoraConfig(rank=2, targets=("q_proj", "mlp.up_proj"))
    assert trainer_arguments(run)["lora"] == expected
    assert "ref_logprobs_T" in run.build_algorithm().needs
    assert reference_path(run) is None
    own = dataclasses.replace(run, model=dataclasses.replace(run.model, reference="other"))
    assert reference_path(own) == "other"
    whole = dataclasses.replace(run, model=dataclasses.replace(run.model, lora=None))
    assert reference_path(whole) == "nowhere"


@pytest.mark.parametrize(
    ("scaling", "scale"), [("rank", 6.0 / 4.0), ("root-rank", 6.0 / 2.0)], ids=["rank", "root-rank"]
)
def test_scale(scaling, scale):
    assert LoraConfig(rank=4, alpha=6.0, scaling=scaling).scale == scale


# ------------------------------------------------------------------------------ layers


def test_all_linear_layers_but_the_output_layer():
    module = tiny_model("llama", tie_word_embeddings=False).module
    names = find_targets(module, LORA)
    kinds = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert sorted({name.rsplit(".", 1)[-1] for name in names}) == sorted(kinds)
    assert len(names) == 2 * len(kinds)
    few = find_targets(module, LoraConfig(rank=1, targets=("mlp.up_proj", "model.layers.1.self_attn.q_proj")))
    assert few == [
        "model.layers.0.mlp.up_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.mlp.up_proj",
    ]


@pytest.mark.parametrize(("arch", "targets", "says"), [
    ("qwen3", ("q_porj",), "did you mean 'q_proj'"),
    ("qwen3", ("lm_head",), "has no linear layer 'lm_head'"),
    ("gpt2", "all-linear", "has no linear layers"),
])  # fmt: skip
def test_layers_that_are_not_there_are_refused(arch, targets, says):
    with pytest.raises(SettingError, match=says):
        find_targets(tiny_model(arch).module, LoraConfig(rank=1, targets=targets))


def test_a_model_gets_adapters_once():
    model = tiny_model()
    trainer_of(model)
    with pytest.raises(SettingError, match="has adapters already"):
        trainer_of(model)


def test_a_plan_counts_the_adapters_that_are_made(tmp_path: Path):
    model = tiny_model()
    model.module.config.save_pretrained(tmp_path)
    for targets in ("all-linear", ("q_proj", "mlp.down_proj")):
        trainer = trainer_of(tiny_model(), LoraConfig(rank=3, targets=targets))
        counted = sum(tensor.numel() for tensor in masters(trainer)["policy"].values())
        assert read_shape(str(tmp_path)).adapters(3, targets) == counted


# ------------------------------------------------------------------------------ files


def test_the_adapter_is_what_peft_reads(tmp_path: Path):
    """Its format read by this test's own code: names, shapes, and alpha / r * B A beside the base."""
    model = tiny_model()
    trainer = trainer_of(model, LoraConfig(rank=4, alpha=6.0, targets=("q_proj",), scaling="root-rank"))
    stir(trainer)
    asyncio.run(trainer.save(tmp_path))
    told = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (told["peft_type"], told["task_type"], told["r"], told["lora_alpha"]) == (
        "LORA",
        "CAUSAL_LM",
        4,
        6.0,
    )
    assert told["target_modules"] == ["q_proj"]
    assert told["use_rslora"] is True
    assert told["bias"] == "none"
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    prefix = "base_model.model.model.layers"
    assert sorted(tensors) == sorted(
        f"{prefix}.{i}.self_attn.q_proj.lora_{kind}.weight" for i in (0, 1) for kind in "AB"
    )
    plain = tiny_model()
    for i, layer in enumerate(plain.module.model.layers):
        a, b = (tensors[f"{prefix}.{i}.self_attn.q_proj.lora_{kind}.weight"] for kind in "AB")
        assert (tuple(a.shape), tuple(b.shape)) == ((4, 32), (32, 4))
        layer.self_attn.q_proj.weight.data += 6.0 / 2.0 * (b @ a)
    published = weights(trainer)
    for name, parameter in plain.module.named_parameters():
        torch.testing.assert_close(published[name], parameter.detach(), rtol=0, atol=1e-6)
    again = tiny_model()
    merge_adapter(again.module, tmp_path / "adapter")
    assert same(dict(again.module.named_parameters()), published)


def test_an_adapter_that_is_not_there_or_not_of_this_model_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match="holds no adapter"):
        merge_adapter(tiny_model().module, tmp_path)
    trainer = trainer_of(tiny_model())
    asyncio.run(trainer.save(tmp_path))
    with pytest.raises(RunError, match="does not belong to this model"):
        merge_adapter(tiny_model(hidden_size=16).module, tmp_path / "adapter")


def test_the_first_a_is_drawn_by_the_seed_alone():
    first, second, other = (copy.deepcopy(tiny_model()) for _ in range(3))
    for model, seed in ((first, 1), (second, 1), (other, 2)):
        torch.rand(3)
        add_adapters(model.module, LORA, seed=seed)
    layers = [model.module.model.layers[0].self_attn.q_proj for model in (first, second, other)]
    assert torch.equal(layers[0].lora_A, layers[1].lora_A)
    assert not torch.equal(layers[0].lora_A, layers[2].lora_A)
    assert float(layers[0].lora_A.abs().max()) <= 1 / math.sqrt(32)


def test_a_base_in_another_dtype_is_another_base(tmp_path: Path):
    asyncio.run(trainer_of(tiny_model()).save(tmp_path))
    with pytest.raises(RunError, match=r"bfloat16 here, float32 there"):
        asyncio.run(trainer_of(lowered()).load(tmp_path))
