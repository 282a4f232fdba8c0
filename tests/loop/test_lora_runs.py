"""Runs that train adapters: they learn, resume to the bit, export, and run on a cluster as they are."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.loop.test_training_flow import events
from tests.tiny_runs import SilentView, model_folder, tiny_run, train_silently
from trimtab.config import Run, run_from_dict, run_to_dict
from trimtab.errors import RunError
from trimtab.launch import evaluate, export
from trimtab.models import load_model
from trimtab.record.events import Event

LORA = {"rank": 4, "alpha": 8.0}
KL = {"name": "grpo", "kl_coef": 0.02}


def adapted_run(model: Path, algorithm: Any = KL, lora: Any = LORA, **sections: Any) -> Run:
    tree = run_to_dict(tiny_run(model, algorithm, **sections))
    return run_from_dict({**tree, "model": {"path": str(model), **({"lora": lora} if lora else {})}})


def checks(folder: Path) -> list[dict[str, Any]]:
    return events(folder, Event.CHECKED)


def adapter(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{step:06d}" / "adapter" / "adapter_model.safetensors")


def test_adapters_learn_a_rule_from_its_reward_alone(tmp_path: Path):
    """The output layer is frozen, so its rows are large enough here to say what is to be learned."""
    run = adapted_run(
        model_folder(tmp_path / "model", spread=0.25),
        "dapo",
        run={"steps": 24},
        data={"held_out": 64, "train_prompts": 200},
        sampling={"prompts_per_step": 8, "samples_per_prompt": 8, "max_new_tokens": 3},
        trainer={"learning_rate": 1e-2},
        evaluation={"samples": 4, "ks": [1]},
        record={"checkpoint_every": 100, "rollouts": 0, "tokens": 0},
    )
    summary, view = train_silently(run, tmp_path / "run")
    assert summary["evaluation"]["start"]["pass@1"] < 0.4
    assert summary["evaluation"]["final"]["pass@1"] > 0.8
    assert any("policy: 4,096 parameters in 28 tensors" in line for line in view.lines)
    found = checks(tmp_path / "run")
    assert len(found) >= 3
    assert all(event["passed"] for event in found)


@pytest.fixture
def whole(model: Path, tmp_path: Path) -> Path:
    """A run of four steps that nothing disturbed."""
    train_silently(adapted_run(model), tmp_path / "whole")
    return tmp_path / "whole"


def test_a_resumed_run_is_the_whole_one_to_the_bit(model: Path, whole: Path, tmp_path: Path):
    folder = tmp_path / "halves"
    train_silently(adapted_run(model, run={"steps": 2}), folder)
    train_silently(adapted_run(model), folder, resume=True)
    left, right = adapter(whole, 4), adapter(folder, 4)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    ("lora", "says"),
    [(None, "trains adapters, this one trains all weights"), ({"rank": 2}, r"model\.lora\.rank = 4")],
)
def test_a_run_goes_on_with_its_own_adapters_only(model: Path, whole: Path, lora: Any, says: str):
    with pytest.raises(RunError, match=says):
        train_silently(adapted_run(model, lora=lora, run={"steps": 5}), whole, resume=True)


def test_an_exported_model_is_base_and_adapters_in_one(model: Path, whole: Path, tmp_path: Path):
    to = export(whole, step=None, to=tmp_path / "exported")
    merged: Any = AutoModelForCausalLM.from_pretrained(to)
    base = dict(load_model(str(model)).module.named_parameters())
    told = json.loads((to / "adapter" / "adapter_config.json").read_text())
    assert (told["r"], told["lora_alpha"], told["base_model_name_or_path"]) == (4, 8.0, str(model))
    tensors = load_file(to / "adapter" / "adapter_model.safetensors")
    moved = 0
    for name, parameter in merged.named_parameters():
        expected = base[name].detach()
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" in tensors:
            a, b = (tensors[f"{key}.lora_{kind}.weight"] for kind in "AB")
            assert float(b.abs().max()) > 0.0
            expected, moved = expected + 8.0 / 4.0 * b @ a, moved + 1
        torch.testing.assert_close(parameter.detach(), expected, rtol=0, atol=1e-6)
    assert moved == 14
    with pytest.raises(RunError, match="exists already"):
        export(whole, step=None, to=to)


def test_an_evaluation_of_a_checkpoint_is_that_of_its_exported_model(
    model: Path, whole: Path, tmp_path: Path
):
    run = adapted_run(model)
    there = evaluate(run, folder=whole, step=4, view=SilentView())
    exported = export(whole, step=4, to=tmp_path / "exported")
    plain = dataclasses.replace(run, model=dataclasses.replace(run.model, path=str(exported), lora=None))
    again = evaluate(plain, folder=None, step=None, view=SilentView())
    assert there["pass@1"] == again["pass@1"]


def test_a_base_that_has_changed_is_not_merged_into(model: Path, whole: Path, tmp_path: Path):
    file = model / "model.safetensors"
    kept = file.read_bytes()
    file.write_bytes(kept[:-4] + b"\x00\x00\x00\x3f")
    try:
        with pytest.raises(RunError, match="is not the one that the adapters"):
            export(whole, step=None, to=tmp_path / "exported")
        with pytest.raises(RunError, match="the frozen weights are not those"):
            train_silently(adapted_run(model, run={"steps": 5}), whole, resume=True)
    finally:
        file.write_bytes(kept)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{"engines": 1, "trainers": 2}, {"engines": 1, "staleness": 1}])
def test_engines_in_other_processes_sample_the_merged_policy(model: Path, tmp_path: Path, cluster: Any):
    run = adapted_run(model, "dapo", run={"steps": 3}, cluster=cluster, record={"checkpoint_every": 3})
    train_silently(run, tmp_path / "run")
    found = checks(tmp_path / "run")
    assert any("engine follows" in event["check"] for event in found)
    assert all(event["passed"] for event in found)
    assert any(
        float(tensor.abs().max()) > 0
        for name, tensor in adapter(tmp_path / "run", 3).items()
        if "lora_B" in name
    )
