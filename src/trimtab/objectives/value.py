"""The critic's loss."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import SettingError
from trimtab.types import Batch, MissingColumnError, ModelOutput, Trace


@dataclass(frozen=True, slots=True)
class ClippedValueLoss:
    """loss_t = 1/2 max((V - R)^2, (V_old + clip(V - V_old, -clip, +clip) - R)^2), 0 where masked.

    V is the critic's value now, V_old its value when advantages were made (``values_T``), R the
    return (``returns_T``). The factor 1/2 makes the gradient V - R. The maximum is pessimistic: once V
    has moved towards R by ``clip``, the token stops pulling; one that moved away is pulled back.
    clip: > 0, in units of reward; None leaves (V - R)^2 / 2 alone.
    Trace: ``values_T`` now, ``value_clipped_T`` True where the clipped branch won (no gradient).
    A convention of code bases, not of the PPO paper (arXiv 1707.06347, eq. 9: the plain square, without 1/2).
    """

    clip: float | None = 0.2

    def __post_init__(self) -> None:
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0.0):
            raise SettingError(f'value loss needs clip > 0, got {self.clip}; "none" leaves it unclipped')

    @property
    def name(self) -> str:
        return "value"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"values_T", "returns_T"})

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        if out.values_T is None:
            raise MissingColumnError("the value loss got no values: the trainer has no critic")
        new_T = torch.where(batch.mask_T, out.values_T, 0.0)
        return_T = torch.where(batch.mask_T, batch.returns_T, 0.0).to(new_T.dtype)
        plain_T = (new_T - return_T).square()
        if self.clip is None:
            return 0.5 * plain_T, Trace(values_T=new_T.detach())
        old_T = torch.where(batch.mask_T, batch.values_T, 0.0).to(new_T.dtype)
        moved_T = new_T - old_T
        held_T = (old_T + moved_T.clamp(-self.clip, self.clip) - return_T).square()
        clipped_T = (moved_T.abs() > self.clip) & (held_T > plain_T)
        trace = Trace(values_T=new_T.detach(), value_clipped_T=clipped_T.detach())
        return 0.5 * torch.maximum(plain_T, held_T), trace

    def __str__(self) -> str:
        return "value loss" if self.clip is None else f"value loss clipped at {self.clip:g}"
