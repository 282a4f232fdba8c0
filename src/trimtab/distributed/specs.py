"""Orders that a worker process carries out to build its engine or its share of the trainer.

They are plain values, pickled to the worker; weights are loaded there, from the model's path.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from trimtab.config import Run
from trimtab.config.arguments import reference_path, trainer_arguments, vllm_length
from trimtab.distributed.meeting import Meeting
from trimtab.distributed.transfer import Described
from trimtab.models import load_model
from trimtab.rollout.engine import Sampling
from trimtab.types import Draw, Group

if TYPE_CHECKING:
    from trimtab.trainer.sharded import ShardedTrainer
    from trimtab.trainer.sharded_group import Group as RankGroup


class LinkedEngine(Protocol):
    """A rollout engine that also takes weights from a broadcast.

    One that shares its layers among several processes takes as many ranks of a meeting, and says so in
    ``link_ranks``; one that has processes of its own ends them in ``close``.
    """

    version: int

    @property
    def dtype(self) -> torch.dtype: ...

    def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]: ...

    async def open_link(self, meeting: Meeting, rank: int) -> None: ...

    async def receive_weights(self, described: Sequence[Described], version: int) -> None: ...


class EngineSpec(Protocol):
    """How to build one engine, and how it likes to be asked.

    draws_at_once: draws that are dealt together, of ``draws`` in all to ``engines`` engines. It depends on
        these counts alone, so that an engine whose numbers depend on the company of a row repeats them.
    deals_at_once: how many such deals it works on together.
    """

    async def build(self) -> LinkedEngine: ...

    def draws_at_once(self, draws: int, engines: int) -> int: ...

    def deals_at_once(self, draws: int, n: int, engines: int) -> int: ...


class TrainerSpec(Protocol):
    """How to build one rank's share of the trainer, once the ranks have met."""

    def build(self, group: RankGroup) -> ShardedTrainer: ...


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """A ``LocalEngine`` over its own copy of the run's model.

    A step is cut into two deals an engine, one after the other: nobody waits long for a slow engine.
    """

    run: Run
    device: str

    async def build(self) -> LinkedEngine:
        from trimtab.distributed.linked import LinkedLocalEngine

        model = load_model(self.run.model.path, device=self.device, dtype=self.run.model.dtype)
        return LinkedLocalEngine(model, fast=self.run.sampling.fast)

    def draws_at_once(self, draws: int, engines: int) -> int:
        return -(-draws // (2 * engines))

    def deals_at_once(self, draws: int, n: int, engines: int) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """A ``VllmEngine``, which puts draws together by itself: they are dealt one by one.

    Three quarters of an engine's share are dealt at once; the rest goes to whoever is done first.
    """

    run: Run

    async def build(self) -> LinkedEngine:
        from trimtab.distributed.vllm_engine import VllmEngine

        run = self.run
        return await VllmEngine.start(
            run.model.path,
            config=run.cluster.vllm,
            max_model_len=vllm_length(run),
            dtype=run.model.dtype,
        )

    def draws_at_once(self, draws: int, engines: int) -> int:
        return 1

    def deals_at_once(self, draws: int, n: int, engines: int) -> int:
        share = -(-3 * draws // (4 * engines))
        return max(1, min(share, self.run.cluster.vllm.max_sequences // n))


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank's ``ShardedTrainer`` over the run's model."""

    run: Run
    device: str

    def build(self, group: RankGroup) -> ShardedTrainer:
        from trimtab.trainer.sharded import ShardedTrainer

        run = self.run
        model = load_model(run.model.path, device=self.device, dtype=run.model.dtype)
        path = reference_path(run)
        reference = None if path is None else load_model(path, device=self.device, dtype=run.model.dtype)
        return ShardedTrainer(model, group=group, reference=reference, **trainer_arguments(run))
