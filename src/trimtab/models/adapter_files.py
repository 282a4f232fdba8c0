"""Adapters as files that the library peft loads, and the way back into a plain model.

adapter/adapter_config.json            rank, alpha, layers, the base's path
adapter/adapter_model.safetensors      A and B of every layer
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.models.lora import Adapters, LoraConfig, find_targets, merged

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What peft puts before the names of a model that it has wrapped."""


def write_adapter(
    folder: Path, adapters: Adapters, module: PreTrainedModel, weights: Mapping[str, Tensor]
) -> None:
    """Write A and B (by their names in the module) to ``folder`` the way peft does."""
    config = adapters.config
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": module.config.name_or_path or None,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "use_rslora": config.scaling == "root-rank",
        "target_modules": _shortest(adapters, module),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(told, indent=1), encoding="utf-8")
    tensors = {f"{PREFIX}{name}.weight": t.detach().cpu().contiguous() for name, t in weights.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _shortest(adapters: Adapters, module: PreTrainedModel) -> list[str]:
    """Names of kinds of layers where they mean exactly these layers, else full names."""
    kinds = sorted({name.rsplit(".", 1)[-1] for name in adapters.names})
    meant = find_targets(module, LoraConfig(rank=1, targets=tuple(kinds)))
    return kinds if set(meant) == set(adapters.names) else list(adapters.names)


@torch.no_grad()
def merge_adapter(module: PreTrainedModel, folder: Path) -> None:
    """Add the products of a written adapter to the weights of a plain model, in place.

    Raises: RunError when the files are missing or damaged, or belong to another model.
    """
    try:
        told: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        scaling = "root-rank" if told["use_rslora"] else "rank"
        config = LoraConfig(rank=int(told["r"]), alpha=float(told["lora_alpha"]), scaling=scaling)
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"{folder} holds no adapter ({error}); take another checkpoint") from None
    names = {name.removeprefix(PREFIX).rsplit(".", 2)[0] for name in tensors}
    for name in sorted(names):
        try:
            weight = cast(nn.Linear, module.get_submodule(name)).weight
            a, b = (
                tensors[f"{PREFIX}{name}.{kind}.weight"].to(weight.device) for kind in ("lora_A", "lora_B")
            )
            weight.copy_(merged(weight, a, b, config.scale))
        except (AttributeError, KeyError, RuntimeError) as error:
            raise RunError(
                f"the adapter {folder} does not belong to this model: {name} ({error}); "
                "load the model it was trained on"
            ) from None
