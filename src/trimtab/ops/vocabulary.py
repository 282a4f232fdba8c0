"""Log-probabilities and entropies straight from hidden states, a piece of the vocabulary at a time.

    z = hidden W^T / temperature    log pi(y) = z_y - L    H = L - sum_v pi(v) z_v    L = log sum_v exp z_v

The same as ``logprobs``, for an output layer that is nothing but a weight. Cut along the vocabulary, the
gradient of each of its rows is one product over all tokens, written once; cut along the tokens it would be
added up once a cut. Logits are made again in the backward pass, and never exist for more than one piece.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 2048
"""Ids a piece: wide enough for products at full speed, and 8 MiB of bfloat16 logits for 2,048 tokens."""

TILE = 1 << 19
"""Float32 logits that are worked on at once: what two second-level caches hold."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Ids [begin, end), and where each target stands in it: its column, and whether it is there at all."""

    begin: int
    end: int
    column_N1: Tensor
    there_N: Tensor


def weight_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    targets_N: Tensor,
    *,
    temperature: float,
    vocab_size: int,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution, in nats: two [N] tensors.

    Arguments and results as of ``logprobs.logprobs_and_entropy``; ``weight_VH`` stands in for the head.
    """
    settings = (temperature, vocab_size, entropy_grad)
    return cast("Any", _WeightLogprobs).apply(hidden_NH, weight_VH, targets_N, settings)


class _WeightLogprobs(torch.autograd.Function):
    """Keeps the states, and two numbers a token."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        targets_N: Tensor,
        settings: tuple[float, int, bool],
    ) -> tuple[Tensor, Tensor]:
        temperature, vocab_size, entropy_grad = settings
        wide = torch.promote_types(hidden_NH.dtype, torch.float32)
        pieces = list(_pieces(targets_N, vocab_size))
        total_PN = hidden_NH.new_empty(len(pieces), len(hidden_NH), dtype=wide)
        mean_PN, picked_N = torch.empty_like(total_PN), total_PN.new_zeros(len(hidden_NH))
        logits, other = _Logits(hidden_NH, temperature), hidden_NH.new_empty(TILE, dtype=wide)
        for number, piece in enumerate(pieces):
            for rows in _tiles(len(hidden_NH), piece.end - piece.begin):
                z = logits(hidden_NH[rows], weight_VH[piece.begin : piece.end])
                probs = torch.softmax(z, -1, out=other[: z.numel()].view_as(z))  # one pass, and no faster one
                total_PN[number, rows] = z.amax(-1).sub_(probs.amax(-1).log_())
                mean_PN[number, rows] = probs.mul_(z).sum(-1)
                found = z.gather(1, piece.column_N1[rows])[:, 0]
                picked_N[rows] += found.where(piece.there_N[rows], found.new_zeros(()))
        total_N = total_PN.logsumexp(0)
        entropy_N = total_N - total_PN.sub_(total_N).exp_().mul_(mean_PN).sum(0)
        ctx.save_for_backward(hidden_NH, weight_VH, targets_N, total_N, entropy_N)
        ctx.settings = settings
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy_N)
        return picked_N - total_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, targets_N, total_N, entropy_N = ctx.saved_tensors
        temperature, vocab_size, entropy_grad = ctx.settings
        grad_N1, grad_entropy_N1 = (grad[:, None] / temperature for grad in grads)
        grad_hidden = torch.zeros_like(hidden_NH, dtype=total_N.dtype)
        grad_weight = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        if grad_weight is not None:
            grad_weight[vocab_size:] = 0.0
        logits = _Logits(hidden_NH, temperature)
        for piece in _pieces(targets_N, vocab_size):
            ids = slice(piece.begin, piece.end)
            slope = hidden_NH.new_empty(len(hidden_NH), piece.end - piece.begin)
            for rows in _tiles(*slope.shape):
                log_probs = logits(hidden_NH[rows], weight_VH[ids]).sub_(total_N[rows, None])
                found = _slope(
                    log_probs,
                    grad_N1[rows],
                    grad_entropy_N1[rows] if entropy_grad else None,
                    entropy_N[rows, None],
                )
                slope[rows] = found.scatter_add_(
                    1, piece.column_N1[rows], grad_N1[rows] * piece.there_N[rows, None]
                )
            grad_hidden += (slope @ weight_VH[ids]).to(grad_hidden.dtype)
            if grad_weight is not None:
                torch.mm(slope.t(), hidden_NH, out=grad_weight[ids])
        return grad_hidden.to(hidden_NH.dtype), grad_weight, None, None


def _slope(log_probs: Tensor, grad_N1: Tensor, grad_entropy_N1: Tensor | None, entropy_N1: Tensor) -> Tensor:
    """The loss's slope in z but for the targets' own share, in place of ``log_probs``.

    d log pi(y) / d z_v = 1[v = y] - pi(v);  d H / d z_v = -pi(v) (log pi(v) + H).
    """
    if grad_entropy_N1 is None:
        return log_probs.exp_().mul_(-grad_N1)
    probs = log_probs.exp()
    return log_probs.add_(entropy_N1).mul_(grad_entropy_N1).add_(grad_N1).mul_(probs).neg_()


class _Logits:
    """z of some tokens and ids, float32 or wider: always in the same memory, until the next call."""

    def __init__(self, hidden_NH: Tensor, temperature: float) -> None:
        self.temperature = temperature
        self.product = hidden_NH.new_empty(TILE)
        self.wide = self.product.to(torch.promote_types(hidden_NH.dtype, torch.float32))

    def __call__(self, hidden_NH: Tensor, weight_VH: Tensor) -> Tensor:
        shape = len(hidden_NH), len(weight_VH)
        product = self.product[: shape[0] * shape[1]].view(shape)
        torch.mm(hidden_NH, weight_VH.t(), out=product)
        z = self.wide[: product.numel()].view(shape)
        if z.data_ptr() != product.data_ptr():
            z.copy_(product)
        return z if self.temperature == 1.0 else z.div_(self.temperature)


def _pieces(targets_N: Tensor, vocab_size: int) -> Iterator[_Piece]:
    for begin in range(0, vocab_size, PIECE):
        end = min(begin + PIECE, vocab_size)
        column_N = targets_N - begin
        there_N = (column_N >= 0) & (column_N < end - begin)
        yield _Piece(begin, end, column_N.clamp_(0, end - begin - 1)[:, None], there_N)


def _tiles(tokens: int, ids: int) -> Iterator[slice]:
    step = TILE // ids
    return (slice(at, at + step) for at in range(0, tokens, step))
