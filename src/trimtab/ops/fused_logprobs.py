"""Log-probabilities by a fused GPU kernel of an optional library: logits never exist, nor do entropies.

    log pi(y) = z_y - log sum_v exp z_v,      z = W (h / temperature)

The library is cut-cross-entropy (arXiv 2411.09009). It makes each tile of the logits in the GPU's own fast
memory, once in each pass, and keeps two numbers a token. Sums are float32; but where both states and weight
are 16 bits wide, the products of a target's own logit are rounded to that dtype before they are summed, and
gradients of states and weight are added up in the states' dtype. It may leave out gradients too small for
that dtype; here it leaves out none. Imported in this module only, when it is asked for.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

PACKAGE = "cut_cross_entropy"

HALF = (torch.bfloat16, torch.float16)
"""Dtypes of states that the library has a backward pass for."""


def fused_logprobs(
    hidden_NH: Tensor, weight_VH: Tensor, targets_N: Tensor, *, temperature: float, vocab_size: int
) -> Tensor:
    """Log-probability of each target in nats: [N] float32, with gradients for states and weight.

    Arguments as of ``vocabulary.weight_logprobs``. States are rounded to bfloat16 where they are wider,
    and once more by the temperature, unless it is a power of two.
    """
    states = hidden_NH if hidden_NH.dtype in HALF else hidden_NH.to(torch.bfloat16)
    if temperature != 1.0:
        states = states / temperature
    if not len(states):
        return states.sum(-1).float()
    library: Any = importlib.import_module(PACKAGE)
    with torch.autocast(states.device.type, enabled=False):
        surprise_N = library.linear_cross_entropy(
            states.contiguous(), weight_VH[:vocab_size], targets_N, reduction="none", filter_eps=None
        )
    return -surprise_N.float()
