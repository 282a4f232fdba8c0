"""The norm of the mean square over packed tokens, forward and backward, in blocks that stay in the cache.

norm(x) = weight * x / sqrt(mean(x^2) + eps)
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 17
"""Numbers a block: its few float32 copies fit into a processor's second-level cache."""


def normed(
    x_NH: Tensor, weight_H: Tensor, eps: float, inverse_N1: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """norm(x) in the dtype of x, and 1 / sqrt(mean(x^2) + eps) [N, 1] in float32 or wider.

    inverse_N1: what an earlier call gave, where there was one. Inside everything is float32 or wider; x is
    rounded to its dtype before it meets the weight, as transformers does.
    """
    wide = torch.promote_types(x_NH.dtype, torch.float32)
    known = inverse_N1 is not None
    inverse = x_NH.new_empty(len(x_NH), 1, dtype=wide) if inverse_N1 is None else inverse_N1
    out = torch.empty_like(x_NH)
    for rows in _blocks(x_NH):
        x, scale = x_NH[rows].to(wide), inverse[rows]
        if not known:
            square = cast("Tensor", cast("Any", torch.linalg).vecdot(x, x))
            torch.rsqrt(square[:, None].div_(x.shape[1]).add_(eps), out=scale)
        if x.dtype == out.dtype:
            torch.mul(x, scale, out=out[rows])
        else:
            out[rows] = x.mul_(scale)
        out[rows].mul_(weight_H)
    return out, inverse


def normed_backward(
    grad_NH: Tensor, x_NH: Tensor, weight_H: Tensor, inverse_N1: Tensor, added_NH: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of x, to which ``added_NH`` is added, and of the weight.

    With u = x * inverse and g = weight * grad:
    d x = inverse * (g - u * mean(g * u));  d weight = sum_N grad * u.
    """
    wide = inverse_N1.dtype
    weight = weight_H.to(wide)
    grad_weight = torch.zeros_like(weight)
    out = torch.empty_like(x_NH)
    for rows in _blocks(x_NH):
        inverse, g = inverse_N1[rows], grad_NH[rows].to(wide, copy=True)
        u = x_NH[rows].to(wide, copy=True).mul_(inverse)
        both = g * u
        grad_weight += both.sum(0)
        mean = torch.mv(both, weight).div_(len(weight))
        g.mul_(weight).addcmul_(u, mean[:, None], value=-1.0).mul_(inverse)
        if added_NH is not None:
            g += added_NH[rows].to(wide)
        out[rows] = g
    return out, grad_weight.to(weight_H.dtype)


def _blocks(x_NH: Tensor) -> Iterator[slice]:
    step = max(1, BLOCK // x_NH.shape[1])
    return (slice(at, at + step) for at in range(0, len(x_NH), step))


def normed_rows(x_NH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    """norm(x), with gradients."""
    return cast("Any", _Norm).apply(x_NH, weight_H, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        found, inverse_N1 = normed(x_NH, weight_H, eps)
        ctx.save_for_backward(x_NH, weight_H, inverse_N1)
        return found

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        return (*normed_backward(grads[0], *ctx.saved_tensors), None)
