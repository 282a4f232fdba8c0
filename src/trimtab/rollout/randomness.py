"""Uniform numbers by counting, and tokens by the inverse of a distribution function.

A rollout's t-th token is a pure function of (its seed, t, the distribution), so the same tokens come
out whatever else is in the batch, in which row it stands and how often the batch was rebuilt.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The same 64 bits as a signed number, which is what torch's int64 holds."""
    return value - (1 << 64) if value >= 1 << 63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)
BLOCK = 256


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finisher: every input bit reaches every output bit. int64, wrapping."""

    def shifted(value: Tensor, bits: int) -> Tensor:
        return (value >> bits) & ((1 << (64 - bits)) - 1)  # torch's >> keeps the sign, a hash must not

    x = (x ^ shifted(x, 30)) * FIRST
    x = (x ^ shifted(x, 27)) * SECOND
    return x ^ shifted(x, 31)


def streams(seeds: Tensor) -> Tensor:
    """Each seed (int64) as the start of its own stream of uniforms.

    Seeds are mixed, so that neighbouring ones do not give shifted copies of one stream.
    """
    return _mix(seeds + GOLDEN)


def uniforms(streams_R: Tensor, positions_R: Tensor) -> Tensor:
    """The number at each stream's position, in (0, 1), float64, by hashing alone.

    u = (h + 1/2) / 2^53, h the top 53 bits of mix(stream + (position + 1) * golden)
    Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    bits = _mix(streams_R + (positions_R + 1) * GOLDEN)
    return (((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) + 0.5) * 2.0**-53


class Chosen(NamedTuple):
    """One token a row. ``ids_R`` int64; ``logprobs_R`` float32, NaN where the logits were not finite."""

    ids_R: Tensor
    logprobs_R: Tensor


def choose(logits_RV: Tensor, uniforms_R: Tensor, temperature: float) -> Chosen:
    """Draw a token a row from softmax(logits / temperature), and its log-probability, in one pass.

    token   = min {v : F(v) > u * F(V)},   F(v) = sum_{j <= v} exp(l_j - max l),   l = logits / temperature
    logprob = log exp(l_token - max l) - log F(V)
    Exponentials are float32; sums over blocks of 256 ids are added up in float64, the block is found
    first and then the id inside it, so no row of V float64 numbers is ever made. ``logits_RV`` is
    overwritten when it is float32.
    """
    mass = logits_RV.float()
    if temperature != 1.0:
        mass.div_(temperature)
    mass.sub_(mass.amax(1, keepdim=True)).exp_()
    if mass.shape[1] <= BLOCK:
        cumulative = mass.double().cumsum(1)
        total = cumulative[:, -1]
        ids, _ = _first_above(cumulative, uniforms_R * total)
    else:
        blocks = _block_sums(mass).cumsum(1)
        total = blocks[:, -1]
        target = uniforms_R * total
        block, before = _first_above(blocks, target)
        inside = block[:, None] * BLOCK + torch.arange(BLOCK, device=mass.device)
        known = inside < mass.shape[1]
        picked = mass.gather(1, inside.clamp(max=mass.shape[1] - 1)).where(known, 0.0)
        offset, _ = _first_above(picked.double().cumsum(1), target - before)
        ids = (block * BLOCK + offset).clamp_(max=mass.shape[1] - 1)  # NaN is above nothing and lands beyond
    logprobs = mass.gather(1, ids[:, None])[:, 0].log().double() - total.log()
    return Chosen(ids, logprobs.float())


def _block_sums(mass_RV: Tensor) -> Tensor:
    """Sums over consecutive blocks of 256 columns, the last one perhaps shorter, float64."""
    whole = mass_RV.shape[1] // BLOCK * BLOCK
    sums = mass_RV[:, :whole].unflatten(1, (-1, BLOCK)).sum(2)
    if whole < mass_RV.shape[1]:
        sums = torch.cat((sums, mass_RV[:, whole:].sum(1, keepdim=True)), 1)
    return sums.double()


def _first_above(cumulative: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Per row the first column whose cumulative mass exceeds ``target``, and the mass before it.

    A target that rounding put at or beyond the total falls on the last column with mass.
    """
    last = cumulative[:, -1]
    below = torch.minimum(target, torch.nextafter(last, torch.zeros_like(last)))
    column = torch.searchsorted(cumulative, below[:, None], right=True)[:, 0]
    column.clamp_(max=cumulative.shape[1] - 1)
    before = cumulative.gather(1, (column - 1).clamp_(min=0)[:, None])[:, 0]
    return column, before.where(column > 0, 0.0)
