"""Keys and values (or recurrent states) for every row of a decoding batch.

``Slab``, for attention models, is one preallocated block a layer. Rows are right-aligned: all of them
write at the same column ``stop``, and a row's tokens fill the columns before it without a gap. So a
step writes one slice, a row that ends is replaced by moving one row, and a prompt that enters is copied
to the columns that end at ``stop``; nothing is padded anew. Distances between columns are distances
between tokens, so every mask that transformers builds (causal, sliding window, chunked) is right with
the plain padding mask.

``Wave``, for models with recurrent layers, leaves the states to transformers' own cache: such states
have no columns, so rows can leave but no row can enter before all have left.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)


@dataclass(slots=True)
class Frame:
    """Where a batch stands: live rows, the window of columns [first, stop), and what is allocated."""

    rows: int
    first: int
    stop: int
    max_rows: int
    capacity: int


class SlabLayer(CacheLayerMixin):
    """Keys and values of one layer, [max_rows, heads, capacity, D], allocated by its first update."""

    is_sliding = False

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def block(states: Tensor) -> Tensor:
            # zeros, because a masked column still enters the sum as 0 * value, and 0 * NaN is NaN
            return states.new_zeros(
                self.frame.max_rows, states.shape[1], self.frame.capacity, states.shape[3]
            )

        self.keys, self.values = block(key_states), block(value_states)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write at ``stop``; the window with the new columns comes back as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        f = self.frame
        end = f.stop + key_states.shape[2]
        keys, values = cast(Tensor, self.keys)[: f.rows], cast(Tensor, self.values)[: f.rows]
        keys[:, :, f.stop : end] = key_states
        values[:, :, f.stop : end] = value_states
        return keys[:, :, f.first : end], values[:, :, f.first : end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.frame.stop - self.frame.first

    def get_max_length(self) -> int:
        return -1


class SlabCache(Cache):
    """What transformers sees of a slab: a cache that holds ``stop - first`` tokens."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        super().__init__(layer_class_to_replicate=cast(Any, lambda: SlabLayer(frame)))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.frame.stop - self.frame.first

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0


class Store(Protocol):
    """States of the rows of a frame."""

    frame: Frame
    enters_anytime: bool

    def fresh(self, rows: int, columns: int) -> CachedStore:
        """An empty store for a prefill of this shape."""
        ...

    def place(self, fresh: CachedStore, source_N: Tensor, row: int, prompts: Sequence[int]) -> None:
        """Rows ``source_N`` (ascending) of ``fresh`` enter as ``row`` and on, columns ending at ``stop``.

        prompts: tokens of each row of ``fresh``.
        """
        ...

    def renew(self, fresh: CachedStore, row: int) -> None:
        """Take all rows of ``fresh``, whose columns are the window's, as the states of ``row`` and on."""
        ...

    def fill_holes(self, to: Tensor, source: Tensor, order: Tensor) -> None:
        """Copy rows ``source`` over rows ``to``; ``order`` says the same of all rows that stay."""
        ...

    def shift(self, old: slice, new: slice) -> None:
        """Move columns ``old`` to ``new``, in new blocks of the frame's capacity."""
        ...


class CachedStore(Store, Protocol):
    """A store that transformers reads and writes, as ``cache``."""

    cache: Cache


class Slab(CachedStore):
    """One block of keys and one of values a layer, in which rows enter, move and leave."""

    enters_anytime = True

    def __init__(self, frame: Frame, config: PretrainedConfig) -> None:
        self.frame, self.config = frame, config
        self.cache: Cache = SlabCache(frame)

    def fresh(self, rows: int, columns: int) -> Slab:
        return Slab(Frame(rows=rows, first=0, stop=0, max_rows=rows, capacity=columns), self.config)

    def place(self, fresh: CachedStore, source_N: Tensor, row: int, prompts: Sequence[int]) -> None:
        f = self.frame
        rows = slice(row, row + len(source_N))
        columns = slice(f.stop - fresh.frame.stop, f.stop)
        layers = cast(list[Any], self.cache.layers)
        while len(layers) < len(fresh.cache.layers):
            layers.append(SlabLayer(f))
        for layer, new in zip(layers, cast(list[Any], fresh.cache.layers), strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(new.keys, new.values)
            layer.keys[rows, :, columns] = new.keys[source_N]
            layer.values[rows, :, columns] = new.values[source_N]

    def renew(self, fresh: CachedStore, row: int) -> None:
        self.place(fresh, torch.arange(fresh.frame.rows), row, ())

    def fill_holes(self, to: Tensor, source: Tensor, order: Tensor) -> None:
        if not len(to):
            return
        window = slice(self.frame.first, self.frame.stop)
        for layer in cast(list[Any], self.cache.layers):
            layer.keys[to, :, window] = layer.keys[source, :, window]
            layer.values[to, :, window] = layer.values[source, :, window]

    def shift(self, old: slice, new: slice) -> None:
        rows = self.frame.rows
        for layer in cast(list[Any], self.cache.layers):
            keys, values = layer.keys, layer.values
            layer.lazy_initialization(keys, values)
            layer.keys[:rows, :, new] = keys[:rows, :, old]
            layer.values[:rows, :, new] = values[:rows, :, old]


class Wave(CachedStore):
    """Transformers' own cache for the architecture; the rows of one prefill are all it can hold."""

    enters_anytime = False

    def __init__(self, frame: Frame, config: PretrainedConfig) -> None:
        self.frame, self.config = frame, config
        self.cache: Cache = DynamicCache(config=config)

    def fresh(self, rows: int, columns: int) -> Wave:
        return Wave(Frame(rows=rows, first=0, stop=0, max_rows=rows, capacity=columns), self.config)

    def place(self, fresh: CachedStore, source_N: Tensor, row: int, prompts: Sequence[int]) -> None:
        if row:
            raise ValueError("a wave's rows must all enter at once")
        self.cache = fresh.cache
        self.cache.reorder_cache(cast(Any, source_N))

    def renew(self, fresh: CachedStore, row: int) -> None:
        self.place(fresh, torch.arange(fresh.frame.rows), row, ())

    def fill_holes(self, to: Tensor, source: Tensor, order: Tensor) -> None:
        if len(order):
            self.cache.reorder_cache(cast(Any, order))

    def shift(self, old: slice, new: slice) -> None:
        """Nothing: these states do not lie in the batch's columns."""


def store_for(config: PretrainedConfig, frame: Frame) -> CachedStore:
    """A slab where every layer of the architecture is plain or sliding attention, else a wave."""
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    layers = DynamicCache(config=config).layers
    return Slab(frame, config) if all(type(layer) in plain for layer in layers) else Wave(frame, config)
