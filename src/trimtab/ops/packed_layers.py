"""The two halves of a decoder layer over packed tokens [N, H], each one step of autograd.

    attention half:      y = x + attend(rotate(norm(x) W_qkv + b)) W_o
    feed-forward half:   y = x + (silu(n W_gate) * (n W_up)) W_down,     n = norm(x)
    norm(x) = weight * x / sqrt(mean(x^2) + eps)

Matrix products are in the dtype of the weights; norms, rotation and attention are float32 inside (float64 for
float64 weights). Only what would cost a product to compute again is kept for the backward pass.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trimtab.ops.packed_attention import Block, Heads, attend, attend_backward
from trimtab.ops.packed_norm import normed, normed_backward


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokens:
    """What all layers must be told of the packed tokens.

    cos_ND, sin_ND: [N, size / 2] of each token's position. blocks: who sees whom.
    """

    cos_ND: Tensor
    sin_ND: Tensor
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What the attention of a layer is like, beside its weights."""

    heads: Heads
    scale: float
    eps: float


def attention_half(
    x_NH: Tensor,
    norm_H: Tensor,
    inputs: Sequence[Tensor],
    biases: Sequence[Tensor],
    head_norms: Sequence[Tensor],
    output: Tensor,
    *,
    shape: Attention,
    tokens: Tokens,
) -> Tensor:
    """The attention half of a layer.

    inputs: weights of queries, keys, values; biases: theirs, or none; head_norms: norms of each query and
    each key head [size], or none; output: weight of the output.
    """
    parts = (*inputs, *biases, *head_norms)
    counts = (len(inputs), len(biases), len(head_norms))
    return _AttentionHalf.apply(x_NH, shape, tokens, counts, norm_H, output, *parts)  # type: ignore[no-any-return]


def feed_forward_half(
    x_NH: Tensor, norm_H: Tensor, gate: Tensor, up: Tensor, down: Tensor, *, eps: float
) -> Tensor:
    """The feed-forward half of a layer; gate, up [I, H] and down [H, I] as ``nn.Linear`` holds them."""
    return _FeedForwardHalf.apply(x_NH, eps, norm_H, gate, up, down)  # type: ignore[no-any-return]


class _AttentionHalf(torch.autograd.Function):
    """Keeps x, queries, keys and values, and what attention gave.

    Queries and keys are kept rotated, or where heads have norms as they are before these.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_NH: Tensor,
        shape: Attention,
        tokens: Tokens,
        counts: tuple[int, int, int],
        norm_H: Tensor,
        output: Tensor,
        *parts: Tensor,
    ) -> Tensor:
        inputs, biases, head_norms = _cut(parts, counts)
        n_NH, inverse_N1 = normed(x_NH, norm_H, shape.eps)
        weight = torch.cat(inputs)
        qkv_NC = torch.nn.functional.linear(n_NH, weight, torch.cat(biases) if biases else None)
        turned_NC, _ = _turned(qkv_NC, head_norms, shape, tokens)
        attended_NC = attend(turned_NC, shape.heads, shape.scale, tokens.blocks)
        kept_NC = qkv_NC if head_norms else turned_NC
        ctx.save_for_backward(x_NH, inverse_N1, norm_H, weight, kept_NC, attended_NC, output, *head_norms)
        ctx.settings = shape, tokens, counts, [len(part) for part in inputs]
        return torch.addmm(x_NH, attended_NC, output.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        (grad_NH,) = grads
        x_NH, inverse_N1, norm_H, weight, kept_NC, attended_NC, output, *head_norms = ctx.saved_tensors
        shape, tokens, counts, sizes = ctx.settings
        grad_output = grad_NH.t() @ attended_NC
        turned_NC, inverses = kept_NC, []
        if head_norms:
            turned_NC, inverses = _turned(kept_NC, head_norms, shape, tokens)
        grad_turned = attend_backward(grad_NH @ output, turned_NC, shape.heads, shape.scale, tokens.blocks)
        grad_qkv, grad_heads = _turned_back(grad_turned, kept_NC, head_norms, inverses, shape, tokens)
        n_NH, _ = normed(x_NH, norm_H, shape.eps, inverse_N1)
        grad_inputs: tuple[Tensor, ...] = torch.split(grad_qkv.t() @ n_NH, sizes)
        grad_biases: tuple[Tensor, ...] = ()
        if counts[1]:
            grad_biases = torch.split(grad_qkv.sum(0, dtype=inverse_N1.dtype).to(grad_qkv.dtype), sizes)
        grad_x, grad_norm = normed_backward(grad_qkv @ weight, x_NH, norm_H, inverse_N1, added_NH=grad_NH)
        parts = (*grad_inputs, *grad_biases, *grad_heads)
        return (grad_x, None, None, None, grad_norm, grad_output, *parts)


class _FeedForwardHalf(torch.autograd.Function):
    """Keeps x and the two inner products."""

    @staticmethod
    def forward(
        ctx: Any, x_NH: Tensor, eps: float, norm_H: Tensor, gate: Tensor, up: Tensor, down: Tensor
    ) -> Tensor:
        n_NH, inverse_N1 = normed(x_NH, norm_H, eps)
        gate_NI, up_NI = n_NH @ gate.t(), n_NH @ up.t()
        inner_NI = torch.nn.functional.silu(gate_NI).mul_(up_NI)
        ctx.save_for_backward(x_NH, inverse_N1, norm_H, gate, up, down, gate_NI, up_NI)
        ctx.eps = eps
        return torch.addmm(x_NH, inner_NI, down.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        (grad_NH,) = grads
        x_NH, inverse_N1, norm_H, gate, up, down, gate_NI, up_NI = ctx.saved_tensors
        silu_NI = torch.nn.functional.silu(gate_NI)
        grad_inner = grad_NH @ down
        grad_down = grad_NH.t() @ (silu_NI * up_NI)
        grad_up_NI = silu_NI.mul_(grad_inner)
        grad_gate_NI = torch.ops.aten.silu_backward(grad_inner.mul_(up_NI), gate_NI)
        n_NH, _ = normed(x_NH, norm_H, ctx.eps, inverse_N1)
        grad_n = (grad_gate_NI @ gate).addmm_(grad_up_NI, up)
        grad_x, grad_norm = normed_backward(grad_n, x_NH, norm_H, inverse_N1, added_NH=grad_NH)
        return (grad_x, None, grad_norm, grad_gate_NI.t() @ n_NH, grad_up_NI.t() @ n_NH, grad_down)


def _cut(parts: Sequence[Tensor], counts: Sequence[int]) -> list[tuple[Tensor, ...]]:
    found: list[tuple[Tensor, ...]] = []
    at = 0
    for count in counts:
        found.append(tuple(parts[at : at + count]))
        at += count
    return found


def _turned(
    qkv_NC: Tensor, head_norms: Sequence[Tensor], shape: Attention, tokens: Tokens
) -> tuple[Tensor, list[Tensor]]:
    """Queries and keys, normed where they are and then rotated, with the values; the norms' inverses."""
    heads = shape.heads
    given_NC = qkv_NC[:, : heads.turned]
    inverses: list[Tensor] = []
    if head_norms:
        given_NC = torch.empty_like(given_NC)
        for norm, columns in zip(head_norms, _columns(heads), strict=True):
            scaled, inverse = normed(qkv_NC[:, columns].reshape(-1, heads.size), norm, shape.eps)
            given_NC[:, columns] = scaled.view(len(qkv_NC), -1)
            inverses.append(inverse)
    found = torch.empty_like(qkv_NC)
    _rotate(given_NC, found[:, : heads.turned], heads.size, tokens, 1.0)
    found[:, heads.turned :] = qkv_NC[:, heads.turned :]
    return found, inverses


def _turned_back(
    grads: tuple[Tensor, Tensor],
    qkv_NC: Tensor,
    head_norms: Sequence[Tensor],
    inverses: Sequence[Tensor],
    shape: Attention,
    tokens: Tokens,
) -> tuple[Tensor, list[Tensor]]:
    """The gradient of ``qkv_NC``, given ``attend_backward``'s; and those of the norms."""
    heads, found = shape.heads, torch.empty_like(qkv_NC)
    of_norms: list[Tensor] = []
    queries, keys = _columns(heads)
    grad_q, grad_kv = grads[0], grads[1].to(qkv_NC.dtype)
    _rotate(grad_q, found[:, queries], heads.size, tokens, -1.0)
    _rotate(grad_kv[:, : heads.key * heads.size], found[:, keys], heads.size, tokens, -1.0)
    found[:, heads.turned :] = grad_kv[:, heads.key * heads.size :]
    for norm, inverse, columns in zip(head_norms, inverses, (queries, keys), strict=False):
        given, grad = qkv_NC[:, columns].reshape(-1, heads.size), found[:, columns].reshape(-1, heads.size)
        grad_given, grad_norm = normed_backward(grad, given, norm, inverse)
        found[:, columns] = grad_given.view(len(qkv_NC), -1)
        of_norms.append(grad_norm)
    return found, of_norms


def _columns(heads: Heads) -> tuple[slice, slice]:
    queries = heads.query * heads.size
    return slice(0, queries), slice(queries, heads.turned)


def _rotate(given_NC: Tensor, out_NC: Tensor, size: int, tokens: Tokens, sign: float) -> None:
    """The halves a, b of every head become a cos - b sin and b cos + a sin; sign -1 is the way back."""
    given = given_NC.view(len(given_NC), -1, 2, size // 2)
    out = out_NC.view(len(out_NC), -1, 2, size // 2)
    a, b, to_a, to_b = given[:, :, 0], given[:, :, 1], out[:, :, 0], out[:, :, 1]
    cos, sin = tokens.cos_ND[:, None], tokens.sin_ND[:, None]
    torch.mul(a, cos, out=to_a).addcmul_(b, sin, value=-sign)
    torch.mul(b, cos, out=to_b).addcmul_(a, sin, value=sign)
