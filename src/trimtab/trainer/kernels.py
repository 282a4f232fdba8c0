"""Which optional GPU kernels a trainer may take, and why not: the setting ``trainer.kernels``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from trimtab.errors import SettingError
from trimtab.models import LoadedModel, logit_adjustment
from trimtab.ops.fused_logprobs import HALF, PACKAGE


def require_kernels(model: LoadedModel, kernels: str, *, autocast: bool) -> None:
    """Raises SettingError where these kernels cannot compute this model's log-probabilities, and why."""
    if kernels != "none" and (wrong := _obstacle(model, autocast=autocast)):
        raise SettingError(f'trainer.kernels = "{kernels}" {wrong}, or set trainer.kernels = "none"')


def _obstacle(model: LoadedModel, *, autocast: bool) -> str | None:
    """What is missing and what to do, to stand behind the name of the setting."""
    if model.device.type != "cuda":
        return f"needs a CUDA device, but the model is on the {model.device.type.upper()}; load it on a GPU"
    if importlib.util.find_spec(PACKAGE) is None:
        return "needs the package cut-cross-entropy; install it: pip install 'trimtab[kernels]'"
    if not autocast and model.dtype not in HALF:
        kind = str(model.dtype).removeprefix("torch.")
        return f'computes in bfloat16, but the model is {kind}; set model.dtype = "bfloat16"'
    if not has_plain_head(model.module):
        kind = type(model.module).__name__
        return f"needs an output layer that is one weight, and {kind} does more; take another model"
    return None


def has_plain_head(module: PreTrainedModel) -> bool:
    """Whether logits are the product of states and one weight: no bias, scale, cap or adapter."""
    output = cast("Any", module.get_output_embeddings())
    if type(output) is not nn.Linear or output.bias is not None:
        return False
    probe = torch.tensor([-50.0, -1.0, 0.5, 50.0])
    return bool(torch.equal(logit_adjustment(module)(probe), probe))
