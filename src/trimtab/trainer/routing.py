"""Which experts a mixture-of-experts model chose for each token, and how often the policy chooses them again.

    agreement_t = mean over layers of |old experts and new experts| / experts a token        in [0, 1]

A router is a module whose class is called so (Qwen3MoeTopKRouter, MixtralTopKRouter ...) and that gives
the chosen experts as whole numbers [tokens, k]. Models without one cost nothing.
Source: the share of experts that change with an update is GSPO's reason, arXiv 2507.18071, section 5.3.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

UNKNOWN = -1
"""Stands for the experts of a token that was not looked at."""


def routers(module: nn.Module) -> list[nn.Module]:
    """The routers of a model, in the order of its layers; empty for a dense one."""
    return [part for part in module.modules() if type(part).__name__.endswith("Router")]


@contextmanager
def chosen_experts(parts: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collects each router's choices during one forward pass: a list of [positions, k] int64."""
    found: list[Tensor] = []

    def keep(_: nn.Module, __: object, made: object) -> None:
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor) and not tensor.is_floating_point():
                found.append(tensor.detach().reshape(-1, tensor.shape[-1]))

    handles = [part.register_forward_hook(keep) for part in parts]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def experts_of(found: Sequence[Tensor], state_T: Tensor) -> Tensor | None:
    """[T, layers, k]: experts of the states that predict each token; None where no router spoke."""
    if not found:
        return None
    return torch.stack([choice.index_select(0, state_T) for choice in found], dim=1)


def agreement(old_T: Tensor, new_T: Tensor) -> Tensor:
    """[T] float32: share of the old experts that are chosen again; NaN where the old ones are not known.

    old_T, new_T: [T, layers, k], experts of a token and layer in any order, all different.
    """
    again = (old_T[..., :, None] == new_T[..., None, :]).any(-1)
    shares_T = again.float().mean((-1, -2))
    return torch.where(old_T[:, 0, 0] == UNKNOWN, torch.nan, shares_T)
