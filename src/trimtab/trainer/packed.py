"""Packed micro-batches: tokens one behind the other, each prompt once, no padding.

    prompt 1 | prompt 2 | ... | answers to prompt 1 | answers to prompt 2 | ...

Positions of an answer go on from its prompt's. Nothing is predicted with the state of an answer's last token,
so that token is left out unless values are asked for.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.ops.logprobs import predecessors
from trimtab.ops.packed_attention import Block, Span, block
from trimtab.trainer.layout import require_prompts
from trimtab.types import Batch

SCORES = 1 << 19
"""Attention scores of a block, over all heads: in float32 about what two second-level caches hold."""

EXTRA = 1 << 16
"""What a block costs beside its scores, counted in scores: the calls it takes."""

QUERIES = 256
"""Queries a block of one long sequence: only for so many are keys computed that they do not see."""

Stretch = tuple[int, int, tuple[Span, ...]]
"""First packed token, number of tokens, and what these see beside themselves."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedTokens:
    """A micro-batch: ``ids_N``, ``positions_N`` [N] int64, who sees whom, and where states are found.

    ``state_T`` [T] and ``last_S`` [S] as in ``layout.Layout``; ``last_S`` is empty without last tokens.
    """

    ids_N: Tensor
    positions_N: Tensor
    blocks: list[Block]
    state_T: Tensor
    last_S: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Places:
    """Where prompts [P] and answers [S] begin and how long they are; the orders in which they stand."""

    prompts: list[int]
    answers: list[int]
    prompt_first_P: Tensor
    prompt_size_P: Tensor
    first_S: Tensor
    size_S: Tensor


def packed_tokens(batch: Batch, *, heads: int, last: bool) -> PackedTokens:
    """The batch's sequences packed. heads: of queries. last: whether each answer's last token is there too.

    Raises: DataError for a prompt without a token.
    """
    require_prompts(batch)
    places = _places(batch, last)
    group_S, seq_T = batch.group_S, batch.seq_T
    prompt_S = places.prompt_size_P[group_S]
    prompt_end_S = places.prompt_first_P[group_S] + prompt_S - 1
    lengths_S = batch.lengths_S
    offset_T = torch.arange(batch.num_tokens) - (torch.cumsum(lengths_S, 0) - lengths_S)[seq_T]
    first_T = places.first_S[seq_T]
    there_T = offset_T < places.size_S[seq_T]
    size = sum(len(batch.prompts_P[group]) for group in places.prompts) + int(places.size_S.sum())
    ids, positions = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
    for group in places.prompts:
        begin, prompt = int(places.prompt_first_P[group]), batch.prompts_P[group]
        ids[begin : begin + len(prompt)] = prompt
        positions[begin : begin + len(prompt)] = torch.arange(len(prompt))
    ids[(first_T + offset_T)[there_T]] = batch.token_ids_T[there_T]
    positions[(first_T + offset_T)[there_T]] = (prompt_S[seq_T] + offset_T)[there_T]
    last_S = torch.where(places.size_S > 0, places.first_S + places.size_S - 1, prompt_end_S)
    return PackedTokens(
        ids_N=ids,
        positions_N=positions,
        blocks=list(blocks_of(_stretches(batch, places), heads)),
        state_T=predecessors(offset_T, first_T, prompt_end_S[seq_T]),
        last_S=last_S if last else last_S[:0],
    )


def _places(batch: Batch, last: bool) -> _Places:
    """Prompts, longest first; then their answers in the same order, longest first again."""
    size_P = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    sizes, groups = size_P.tolist(), batch.group_S.tolist()
    prompts = sorted(set(groups), key=lambda group: (-sizes[group], group))
    rank = {group: place for place, group in enumerate(prompts)}
    size_S = batch.lengths_S if last else (batch.lengths_S - 1).clamp_min(0)
    own = size_S.tolist()
    answers = sorted(range(len(own)), key=lambda s: (rank[groups[s]], -own[s], s))
    first_P, first_S, at = torch.zeros_like(size_P), torch.zeros_like(size_S), 0
    for group in prompts:
        first_P[group] = at
        at += sizes[group]
    for sequence in answers:
        first_S[sequence] = at
        at += own[sequence]
    return _Places(
        prompts=prompts,
        answers=answers,
        prompt_first_P=first_P,
        prompt_size_P=size_P,
        first_S=first_S,
        size_S=size_S,
    )


def _stretches(batch: Batch, places: _Places) -> Iterator[Stretch]:
    first, size = places.prompt_first_P.tolist(), places.prompt_size_P.tolist()
    for group in places.prompts:
        yield first[group], size[group], ()
    begins, sizes, groups = places.first_S.tolist(), places.size_S.tolist(), batch.group_S.tolist()
    for sequence in places.answers:
        group = groups[sequence]
        if sizes[sequence]:
            yield begins[sequence], sizes[sequence], ((first[group], first[group] + size[group]),)


def blocks_of(stretches: Iterable[Stretch], heads: int) -> Iterator[Block]:
    """Stretches that see the same together, cut where that costs least; a long one in parts of ``QUERIES``.

    heads: of queries.
    """
    alike: list[Stretch] = []
    for begin, size, before in stretches:
        if alike and (size > QUERIES or before != alike[0][2] or size > alike[-1][1]):
            yield from _cut(alike, heads)
            alike = []
        if size <= QUERIES:
            alike.append((begin, size, before))
            continue
        for at in range(0, size, QUERIES):
            earlier = ((begin, begin + at),) if at else ()
            yield block(begin + at, [min(QUERIES, size - at)], (*before, *earlier))
    if alike:
        yield from _cut(alike, heads)


def _cut(alike: Sequence[Stretch], heads: int) -> Iterator[Block]:
    """Blocks of stretches that see the same, longest first: few, of at most ``SCORES``, with little padding.

    A block costs its scores, padding included, and ``EXTRA``; cost[i] is the least for the first i stretches.
    """
    before = alike[0][2]
    seen = sum(end - begin for begin, end in before)
    cost, cut = [0.0], [0]
    for end in range(1, len(alike) + 1):
        best, best_begin = float("inf"), end - 1
        for begin in range(end - 1, -1, -1):
            width = alike[begin][1]
            scores = heads * (end - begin) * width * (width + seen)
            if scores > SCORES and end - begin > 1:
                break
            if cost[begin] + scores + EXTRA < best:
                best, best_begin = cost[begin] + scores + EXTRA, begin
        cost.append(best)
        cut.append(best_begin)
    ends = [len(alike)]
    while cut[ends[-1]]:
        ends.append(cut[ends[-1]])
    begin = 0
    for end in reversed(ends):
        yield block(alike[begin][0], [size for _, size, _ in alike[begin:end]], before)
        begin = end


def packed_parts(batch: Batch, wanted_S: Tensor, max_tokens: int) -> list[list[int]]:
    """Micro-batches over the wanted sequences: groups in turn, as few as ``max_tokens`` allows, equally full.

    wanted_S: indices. A micro-batch takes up the tokens of its answers and of each of its prompts once; one
    sequence may be longer than ``max_tokens``.
    """
    prompts, groups = [len(prompt) for prompt in batch.prompts_P], batch.group_S.tolist()
    lengths = batch.lengths_S.tolist()
    order = sorted(wanted_S.tolist(), key=lambda s: (groups[s], -lengths[s], s))
    total = sum(lengths[s] for s in order) + sum(prompts[group] for group in {groups[s] for s in order})
    full = total / max(1, -(-total // max_tokens))
    parts: list[list[int]] = []
    used = placed = last = 0
    for sequence in order:
        group, size = groups[sequence], lengths[sequence]
        first = not placed or groups[last] != group
        added = size + (prompts[group] if first else 0)
        if not parts or used + added > max_tokens or placed + added / 2 > full * len(parts):
            parts.append([])
            used, first = 0, True
        parts[-1].append(sequence)
        used += size + (prompts[group] if first else 0)
        placed, last = placed + added, sequence
    return parts
