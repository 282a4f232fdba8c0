"""Causal attention over packed tokens, without padding: answers to one prompt read its keys where they stand.

    weights = softmax(scale * q k^T over the keys a token sees)          out = weights v

Tokens of all sequences stand behind one another in one tensor [N, ...]. They are taken block by block, so
that what a block needs fits into a processor's cache, and weights are computed again in the backward pass:
memory is that of the inputs. Products are in the dtype of the inputs, softmax and sums in float32 (float64
for float64). These are plain functions, without autograd; ``packed_layers`` puts them into one.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

Span = tuple[int, int]
"""Packed tokens from the first up to but not including the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """``query`` heads of ``size`` channels; ``key`` heads, each shared by equally many query heads."""

    query: int
    key: int
    size: int

    @property
    def group(self) -> int:
        return self.query // self.key

    @property
    def queries(self) -> int:
        """Columns of queries; those of keys and then of values follow."""
        return self.query * self.size

    @property
    def turned(self) -> int:
        """Columns of queries and keys, which are rotated; those of values follow."""
        return (self.query + self.key) * self.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Packed tokens [begin, end): ``rows`` stretches of up to ``width`` tokens that are computed together.

    before: what every row sees whole, beside its own earlier tokens. hidden_QK [width, before + width]: 0, or
    -inf for a key that a query does not see. spread_M [rows * width]: the block's token at each place of
    padded rows (some token at padding); kept_M: the place of each token; empty_M: the places of padding. All
    three are None where all rows are equally long.
    """

    begin: int
    end: int
    rows: int
    width: int
    before: tuple[Span, ...]
    hidden_QK: Tensor
    spread_M: Tensor | None = None
    kept_M: Tensor | None = None
    empty_M: Tensor | None = None

    @property
    def size_before(self) -> int:
        return sum(end - begin for begin, end in self.before)

    def padded(self, tokens_NC: Tensor) -> Tensor:
        """[rows, width, C] of this block's tokens; padding holds some token's numbers."""
        mine = tokens_NC[self.begin : self.end]
        mine = mine if self.spread_M is None else mine.index_select(0, self.spread_M)
        return mine.view(self.rows, self.width, tokens_NC.shape[1])

    def silenced(self, tokens_NC: Tensor) -> Tensor:
        """``padded``, with zero at padding: what is not there has no gradient."""
        rows = self.padded(tokens_NC)
        if self.empty_M is not None:
            rows.flatten(0, 1).index_fill_(0, self.empty_M, 0.0)  # of a copy, as there is padding
        return rows

    def packed(self, padded_RWC: Tensor) -> Tensor:
        """[tokens, C] of padded rows."""
        flat = padded_RWC.flatten(0, 1)
        return flat if self.kept_M is None else flat.index_select(0, self.kept_M)


def block(begin: int, lengths: Sequence[int], before: Sequence[Span]) -> Block:
    """The block of stretches of these lengths, one behind the other from ``begin`` on."""
    width, end = max(lengths), begin + sum(lengths)
    seen = sum(e - b for b, e in before)
    hidden = torch.full((width, width), -torch.inf).triu(1)
    spread = kept = empty = None
    if min(lengths) < width:
        length_R = torch.tensor(lengths)
        place_RW = torch.arange(width).expand(len(lengths), width)
        first_R = torch.cumsum(length_R, 0) - length_R
        spread = (first_R[:, None] + place_RW.clamp_max(length_R[:, None] - 1)).flatten()
        there_M = (place_RW < length_R[:, None]).flatten()
        kept, empty = there_M.nonzero().flatten(), there_M.logical_not().nonzero().flatten()
    return Block(
        begin=begin,
        end=end,
        rows=len(lengths),
        width=width,
        before=tuple(before),
        hidden_QK=torch.cat([hidden.new_zeros(width, seen), hidden], 1),
        spread_M=spread,
        kept_M=kept,
        empty_M=empty,
    )


def attend(qkv_NC: Tensor, heads: Heads, scale: float, blocks: Sequence[Block]) -> Tensor:
    """[N, query heads * size]: what each token takes from the values it sees.

    qkv_NC: queries and keys, rotated, and values; every head's channels together.
    """
    out = qkv_NC.new_empty(len(qkv_NC), heads.queries)
    for one in blocks:
        q, k, v = _stacked(qkv_NC, heads, one)
        attended = torch.bmm(_weights(q, k, scale, one).to(v.dtype), v)
        out[one.begin : one.end] = one.packed(_apart(attended, heads, one))
    return out


def attend_backward(
    grad_NC: Tensor, qkv_NC: Tensor, heads: Heads, scale: float, blocks: Sequence[Block]
) -> tuple[Tensor, Tensor]:
    """The gradients of queries, in the inputs' dtype, and of keys and values together, float32 or wider.

    grad_NC: of ``attend``'s result.
    d weights = d out v^T;  d scores = weights (d weights - sum(weights d weights))
    """
    wide = torch.promote_types(qkv_NC.dtype, torch.float32)
    grad_q = torch.empty_like(grad_NC)
    grad_kv = qkv_NC.new_zeros(len(qkv_NC), qkv_NC.shape[1] - heads.queries, dtype=wide)
    for one in blocks:
        q, k, v = _stacked(qkv_NC, heads, one)
        weights = _weights(q, k, scale, one)
        grad = _together(one.silenced(grad_NC), heads)
        slope = _softmax_backward(torch.bmm(grad, v.mT).to(wide), weights).to(q.dtype)
        given = torch.baddbmm(q, slope, k, beta=0.0, alpha=scale)  # beta 0: nothing of q is read
        grad_q[one.begin : one.end] = one.packed(_apart(given, heads, one))
        both = qkv_NC.new_empty(2, *k.shape)
        torch.baddbmm(k, slope.mT, q, beta=0.0, alpha=scale, out=both[0])
        torch.bmm(weights.to(v.dtype).mT, grad, out=both[1])
        _give_back(grad_kv, both, heads, one)
    return grad_q, grad_kv


def _softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """The gradient of scores whose softmax over the last dimension is ``weights``, in one pass."""
    return cast("Any", torch)._softmax_backward_data(grad, weights, -1, weights.dtype)


def _stacked(qkv_NC: Tensor, heads: Heads, one: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [rows * key heads, group * width, size]; keys and values [..., before + width, size].

    Keys and values are what every row sees, then its own.
    """
    rows = one.padded(qkv_NC)
    own = rows[:, :, heads.queries :].view(one.rows, one.width, 2, heads.key, heads.size)
    found = qkv_NC.new_empty(2, one.rows, heads.key, one.size_before + one.width, heads.size)
    found[:, :, :, one.size_before :] = own.permute(2, 0, 3, 1, 4)
    at = 0
    for begin, end in one.before:
        given = qkv_NC[begin:end, heads.queries :].view(-1, 2, heads.key, heads.size).permute(1, 2, 0, 3)
        found[:, :, :, at : at + end - begin] = given[:, None]
        at += end - begin
    k, v = found.flatten(1, 2)
    return _together(rows[:, :, : heads.queries], heads), k, v


def _together(rows_RWC: Tensor, heads: Heads) -> Tensor:
    """[R, W, query heads * size] -> [R * key heads, group * W, size]: heads that share keys in one matrix."""
    rows, width, _ = rows_RWC.shape
    apart = rows_RWC.view(rows, width, heads.key, heads.group, heads.size)
    return apart.permute(0, 2, 3, 1, 4).reshape(rows * heads.key, heads.group * width, heads.size)


def _apart(stacked: Tensor, heads: Heads, one: Block) -> Tensor:
    """The way back from ``_together``."""
    apart = stacked.view(one.rows, heads.key, heads.group, one.width, heads.size)
    return apart.permute(0, 3, 1, 2, 4).reshape(one.rows, one.width, -1)


def _weights(q: Tensor, k: Tensor, scale: float, one: Block) -> Tensor:
    """[B, group * width, before + width] in float32 or wider: rows that sum to 1."""
    scores = torch.bmm(q, k.mT)
    scores = scores.to(torch.promote_types(q.dtype, torch.float32))
    by_query = scores.view(len(q), -1, *one.hidden_QK.shape)
    torch.add(one.hidden_QK.to(scores.dtype), by_query, alpha=scale, out=by_query)
    return torch.softmax(scores, -1)


def _give_back(grad_NC: Tensor, both: Tensor, heads: Heads, one: Block) -> None:
    """Add gradients of keys and values [2, rows * key heads, before + width, size] to their tokens."""
    before = one.size_before
    shaped = both.view(2, one.rows, heads.key, before + one.width, heads.size)
    own = shaped[:, :, :, before:].permute(1, 3, 0, 2, 4).reshape(one.rows, one.width, -1)
    grad_NC[one.begin : one.end] += one.packed(own)
    if before:
        first = shaped[:, :, :, :before].sum(1, dtype=grad_NC.dtype).permute(2, 0, 1, 3).reshape(before, -1)
        at = 0
        for begin, end in one.before:
            grad_NC[begin:end] += first[at : at + end - begin]
            at += end - begin
