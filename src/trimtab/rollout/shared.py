"""Keys and values of a decoding batch in which the rows of a group share those of their prompt.

A prompt's keys and values lie in a slot, once for all answers to it: what every step reads of them shrinks
by the size of the group, and so does their memory. The answers' own lie in rows and columns, as in
``cache.Slab``: all rows write at the column ``stop``, and a row's answer fills the columns before it.

A row's queries meet both parts apart. With o = softmax(s) v and z = log sum exp s of either part,

    attention over both = o_own + w (o_prompt - o_own),    w = sigmoid(z_prompt - z_own)

For the prompts, the queries of a group stand together: each takes a seat in its prompt's slot. Everything
is float32, whatever the model's dtype: for few queries the matrix products are fastest in it, and exact.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from trimtab.rollout.cache import CachedStore, Frame, Slab, Store


@dataclass(slots=True)
class Block:
    """Keys and values of one layer, float32: of prompts [S, K, P, D] and of answers [R, K, C, D].

    S slots, P tokens of the longest prompt, right-aligned; R rows, C columns; K key heads of size D.
    """

    prompt_keys: Tensor
    prompt_values: Tensor
    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SharedStep:
    """What the layers of one step attend over. A part's mask is [.., 1, L] float32, None where all is seen.

    into: for each seat of each key head of each slot, which row and key head sits there.
    back: for each row and key head, its seat.
    """

    blocks: list[Block]
    rows: int
    columns: slice
    own_mask: Tensor | None
    prompt_mask: Tensor | None
    into: Tensor
    back: Tensor

    def attend(self, layer: int, scaling: float, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``packed.States``."""
        block, size = self.blocks[layer], queries.shape[-1]
        own_keys, own_values = block.keys[: self.rows], block.values[: self.rows]
        own_keys[:, :, self.columns.stop - 1] = keys
        own_values[:, :, self.columns.stop - 1] = values
        key_heads = keys.shape[1]
        queries = queries.reshape(self.rows * key_heads, -1, size)
        own, own_z = _part(
            queries,
            scaling,
            own_keys.flatten(0, 1)[:, self.columns],
            own_values.flatten(0, 1)[:, self.columns],
            self.own_mask,
        )
        slots = len(block.prompt_keys) * key_heads
        seated = queries.flatten(1).index_select(0, self.into).view(slots, -1, size)
        prompt, prompt_z = _part(
            seated,
            scaling,
            block.prompt_keys.flatten(0, 1),
            block.prompt_values.flatten(0, 1),
            self.prompt_mask,
        )
        prompt = prompt.view(len(self.into), -1).index_select(0, self.back).view_as(own)
        prompt_z = prompt_z.view(len(self.into), -1).index_select(0, self.back).view_as(own_z)
        return torch.lerp(own, prompt, torch.sigmoid(prompt_z - own_z)).view(self.rows, -1)


def _part(
    queries: Tensor, scaling: float, keys: Tensor, values: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention [B, M, D] of queries [B, M, D] over keys and values [B, L, D], and z [B, M, 1].

    z comes from the likeliest column, z = max s - log max softmax(s): its probability is at least 1 / L, so
    nothing is lost, and no second exponential of all scores is needed.
    """
    added, share = (queries[:, :, :1], 0.0) if mask is None else (mask, 1.0)
    scores = torch.baddbmm(added, queries, keys.transpose(1, 2), beta=share, alpha=scaling)
    weights = scores.softmax(-1)
    z = scores.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log_()
    return torch.bmm(weights, values), z


class Shared(Store):
    """Prompts in slots, answers in rows. Rows enter, move and leave as in a slab."""

    enters_anytime = True

    def __init__(self, frame: Frame, config: PretrainedConfig) -> None:
        self.frame, self.config = frame, config
        self.longest = frame.stop
        self.blocks: list[Block] = []
        self.lengths = np.zeros(0, dtype=np.int64)
        """Tokens of the prompt in each slot."""
        self.slots, self.seats, self.begins = np.zeros((3, frame.max_rows), dtype=np.int64)
        """Of each row: its prompt's slot, its seat there, and the column of its first answer token."""
        self.index: tuple[Tensor, Tensor, Tensor | None] | None = None

    def fresh(self, rows: int, columns: int) -> Slab:
        return Slab(Frame(rows=rows, first=0, stop=0, max_rows=rows, capacity=columns), self.config)

    def place(self, fresh: CachedStore, source_N: Tensor, row: int, prompts: Sequence[int]) -> None:
        f, new = self.frame, slice(row, row + len(source_N))
        layers = cast(list[Any], fresh.cache.layers)
        if not self.blocks:
            self.blocks = [self._empty_block(layer.keys) for layer in layers]
        slots = self._take_slots(prompts, self.slots[:row])
        start = self._first(row)
        for block, layer in zip(self.blocks, layers, strict=True):
            block.prompt_keys[slots, :, self.longest - fresh.frame.stop :] = layer.keys.float()
            block.prompt_values[slots, :, self.longest - fresh.frame.stop :] = layer.values.float()
            # a masked column still enters the sums as 0 * value, and what was never written may be NaN
            block.keys[new, :, start : f.stop] = 0.0
            block.values[new, :, start : f.stop] = 0.0
        source = source_N.numpy()
        self.slots[new] = slots[source]
        self.seats[new] = np.arange(len(source)) - np.searchsorted(source, source)
        self.begins[new] = f.stop
        self.index = None

    def renew(self, fresh: CachedStore, row: int) -> None:
        layers = cast(list[Any], fresh.cache.layers)
        window = slice(self.frame.first, self.frame.stop)
        for i in range(fresh.frame.rows):
            slot, end = self.slots[row + i], self.begins[row + i] - window.start
            length = int(self.lengths[slot])
            for block, layer in zip(self.blocks, layers, strict=True):
                block.prompt_keys[slot, :, self.longest - length :] = layer.keys[i, :, end - length : end]
                block.prompt_values[slot, :, self.longest - length :] = layer.values[i, :, end - length : end]
                block.keys[row + i, :, window] = layer.keys[i]
                block.values[row + i, :, window] = layer.values[i]

    def fill_holes(self, to: Tensor, source: Tensor, order: Tensor) -> None:
        window = slice(self._first(self.frame.rows), self.frame.stop)
        if len(to):
            for block in self.blocks:
                block.keys[to, :, window] = block.keys[source, :, window]
                block.values[to, :, window] = block.values[source, :, window]
        for plane in (self.slots, self.seats, self.begins):
            plane[: len(order)] = plane[order.numpy()]
        self._free_slots(len(order))
        self.index = None

    def shift(self, old: slice, new: slice) -> None:
        rows = self.frame.rows
        if not rows:
            self.blocks = []
            self.lengths = self.lengths[:0]
            return
        first, moved = self._first(rows), new.stop - old.stop
        for block in self.blocks:
            for name in ("keys", "values"):
                before = getattr(block, name)
                after = before.new_empty((*before.shape[:2], self.frame.capacity, before.shape[3]))
                after[:rows, :, first + moved : new.stop] = before[:rows, :, first : old.stop]
                setattr(block, name, after)
        self.begins[:rows] += moved

    def step(self) -> SharedStep:
        """What the layers of the next step attend over, the column it writes included."""
        f = self.frame
        into, back, prompt_mask = self.index = self.index or self._seat()
        columns = slice(self._first(f.rows), f.stop + 1)
        begins = torch.from_numpy(self.begins[: f.rows])
        own_mask = None
        if (self.begins[: f.rows] != columns.start).any():
            unseen = torch.arange(columns.start, columns.stop) < begins[:, None]
            own_mask = self._as_mask(unseen)
        return SharedStep(self.blocks, f.rows, columns, own_mask, prompt_mask, into, back)

    def _first(self, rows: int) -> int:
        """The first column that a row has an answer token in; ``stop`` where there is no row."""
        return int(self.begins[:rows].min()) if rows else self.frame.stop

    def _as_mask(self, unseen: Tensor) -> Tensor:
        """[B, L] bool -> [B * K, 1, L], minus infinity where unseen."""
        mask = torch.zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        return mask.repeat_interleave(self.blocks[0].keys.shape[1], 0)[:, None]

    def _empty_block(self, like: Tensor) -> Block:
        _, heads, _, size = like.shape

        def empty(rows: int, columns: int) -> Tensor:
            return torch.empty(rows, heads, columns, size)

        rows, capacity = self.frame.max_rows, self.frame.capacity
        return Block(
            empty(0, self.longest), empty(0, self.longest), empty(rows, capacity), empty(rows, capacity)
        )

    def _take_slots(self, prompts: Sequence[int], used: np.ndarray) -> np.ndarray:
        """Free slots for prompts of these lengths, made where there are too few."""
        free = np.setdiff1d(np.arange(len(self.lengths)), used)
        more = max(0, len(prompts) - len(free))
        if more:
            free = np.append(free, np.arange(len(self.lengths), len(self.lengths) + more))
            self.lengths = np.append(self.lengths, np.zeros(more, dtype=np.int64))
            for block in self.blocks:
                for name in ("prompt_keys", "prompt_values"):
                    old = getattr(block, name)
                    setattr(block, name, torch.cat((old, old.new_zeros((more, *old.shape[1:])))))
        taken = free[: len(prompts)]
        self.lengths[taken] = prompts
        return taken

    def _free_slots(self, rows: int) -> None:
        """Forget the prompts that no row of these belongs to, once they are half of all."""
        used, renamed = np.unique(self.slots[:rows], return_inverse=True)
        if 2 * len(used) > len(self.lengths):
            return
        kept = torch.from_numpy(used)
        self.slots[:rows], self.lengths = renamed, self.lengths[used]
        for block in self.blocks:
            block.prompt_keys, block.prompt_values = block.prompt_keys[kept], block.prompt_values[kept]

    def _seat(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """``into``, ``back`` and the prompts' mask of ``SharedStep``; an empty seat repeats the first row."""
        rows, heads = self.frame.rows, np.arange(self.blocks[0].keys.shape[1])
        slots, seats = self.slots[:rows], self.seats[:rows]
        size = int(seats.max()) + 1
        sitting = np.zeros((len(self.lengths), size), dtype=np.int64)
        sitting[slots, seats] = np.arange(rows)
        into = sitting[:, None, :] * len(heads) + heads[:, None]
        back = (slots[:, None] * len(heads) + heads) * size + seats[:, None]
        mask = None
        if (self.lengths != self.longest).any():
            before = torch.from_numpy(self.longest - np.maximum(self.lengths, 1))
            mask = self._as_mask(torch.arange(self.longest) < before[:, None])
        return torch.from_numpy(into.ravel()), torch.from_numpy(back.ravel()), mask
