"""The model of a sharded trainer as one folder that transformers can load."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.models import LoadedModel, export_model
from trimtab.models.adapter_files import write_adapter
from trimtab.models.lora import Adapters, adapter_weights
from trimtab.trainer.sharded_model import Gathered, whole_of
from trimtab.trainer.together import Together


def skeleton_of(module: nn.Module) -> Any:
    """A copy of a module that is not sharded yet, with no memory for its parameters; tied ones stay tied."""
    hollow = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
        for p in module.parameters()
    }
    return copy.deepcopy(module, dict(hollow))


def export_whole(
    source: Gathered, skeleton: Any, model: LoadedModel, folder: Path, together: Together
) -> None:
    """Rank 0 collects all weights on its CPU and writes them; the others help to gather.

    skeleton: of the model's module before it was sharded.

    Raises: RunError in every rank when the folder cannot be written.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in source:
        if together.rank == 0:
            found[name] = tensor.cpu().clone()
    with together.as_one():
        if together.rank == 0:
            export_model(_filled(skeleton, found), model.tokenizer, folder)


def export_adapters(
    adapters: Adapters,
    model: LoadedModel,
    dtypes: Mapping[str, torch.dtype],
    folder: Path,
    together: Together,
) -> None:
    """The same for adapters, which rank 0 writes as peft loads them."""
    found: dict[str, Tensor] = {}
    for name, parameter in adapter_weights(model.module).items():
        tensor = whole_of(parameter)
        if together.rank == 0:
            found[name] = tensor.to(dtypes[name]).cpu()
    with together.as_one():
        if together.rank == 0:
            write_adapter(folder, adapters, model.module, found)


def _filled(skeleton: Any, weights: dict[str, Tensor]) -> Any:
    whole = copy.deepcopy(skeleton)
    whole.load_state_dict(weights, strict=False, assign=True)
    whole.tie_weights()
    left = [name for name, tensor in whole.named_parameters() if tensor.is_meta]
    if left:
        raise ValueError(f"the gathered weights lack {left[0]!r}")
    return whole
