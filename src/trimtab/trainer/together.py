"""What the processes that hold one trainer do together: the seam between one process and several ranks.

Everything that an update computes of the whole batch, or decides, goes through a ``Together``. In one process
nothing is exchanged (``Alone``); over ranks of torch.distributed see ``sharded_ranks``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.trainer.forward import Asked
from trimtab.trainer.sharing import Cost
from trimtab.types import Batch, ModelOutput

Parts = Sequence[Sequence[int]]
"""Micro-batches, as indices of a batch's sequences."""

Cutting = Callable[[int], tuple[Batch, list[list[int]]]]
"""From the largest number of tokens in a micro-batch to the batch and its micro-batches."""


class Reads(Protocol):
    """A model that is read over micro-batches; see ``forward.Reader``. Every rank reads at the same time."""

    @property
    def cost(self) -> Cost | None: ...

    @property
    def routers(self) -> Sequence[nn.Module]: ...

    def __call__(self, batch: Batch, asked: Asked) -> tuple[ModelOutput, Tensor | None]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The micro-batches that this process computes, ``parts`` of ``batch``.

    The batch may have more sequences behind those of the whole (for a process that has nothing else to do);
    ``mine_S`` [S] bool says for which of them this process's numbers count, None for all.
    """

    batch: Batch
    parts: Parts
    mine_S: Tensor | None = None


class Together(Protocol):
    """Processes that do the same things in the same order. ``rank`` counts from 0 to ``size`` - 1.

    cut: micro-batches of at most ``limit`` tokens, such that no process need be idle where that is possible.
    share: who computes which; every process computes equally many.
    whole: columns (names end in _T or _S) of all shares together, in the order of the batch.
    added, longest: numbers by name, summed or maximal over processes; the same names everywhere.
    norm: of all tensors of all processes together, taken as one vector.
    first: the first of ``names`` that any process gives as its ``name``.
    agree: raises in every process the fault of the first that has one, so that none waits for another.
    as_one: what fails inside for one process fails for all; all leave it together.
    rows: of a tensor with so many rows, from which to which this process holds.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def cut(self, cutting: Cutting, limit: int) -> tuple[Batch, Parts]: ...

    def share(self, batch: Batch, parts: Parts) -> Share: ...

    def whole(self, columns: Mapping[str, Tensor], share: Share) -> dict[str, Tensor]: ...

    def added(self, numbers: Mapping[str, float]) -> dict[str, float]: ...

    def longest(self, numbers: Mapping[str, float]) -> dict[str, float]: ...

    def norm(self, tensors: Sequence[Tensor]) -> float: ...

    def first(self, name: str | None, names: Sequence[str]) -> str | None: ...

    def agree(self, fault: RunError | None) -> None: ...

    def as_one(self) -> AbstractContextManager[None]: ...

    def rows(self, total: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """One process that holds everything."""

    rank: int = 0
    size: int = 1

    def cut(self, cutting: Cutting, limit: int) -> tuple[Batch, Parts]:
        return cutting(limit)

    def share(self, batch: Batch, parts: Parts) -> Share:
        return Share(batch, parts)

    def whole(self, columns: Mapping[str, Tensor], share: Share) -> dict[str, Tensor]:
        return dict(columns)

    def added(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return dict(numbers)

    def longest(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return dict(numbers)

    def norm(self, tensors: Sequence[Tensor]) -> float:
        return float(nn.utils.get_total_norm(tensors))

    def first(self, name: str | None, names: Sequence[str]) -> str | None:
        return name

    def agree(self, fault: RunError | None) -> None:
        if fault is not None:
            raise fault

    def as_one(self) -> AbstractContextManager[None]:
        return nullcontext()

    def rows(self, total: int) -> tuple[int, int]:
        return 0, total
