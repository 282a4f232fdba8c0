"""The trainer of a cluster under contract: ``RayTrainer`` over actors that all tests of a package share."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tests import rank_process
from tests.ranks import alike
from trimtab.config.cluster import ClusterConfig
from trimtab.distributed.cluster import Cluster
from trimtab.distributed.notices import Notices
from trimtab.distributed.ranks import RayTrainer
from trimtab.models import LoadedModel
from trimtab.trainer.sharded import ShardedTrainer
from trimtab.trainer.sharded_group import Group

SIZE = 2


@dataclass(frozen=True, slots=True)
class NothingYet:
    """Ranks that have met; their trainers are built later."""

    def build(self, group: Group) -> Any:
        return Unbuilt()


class Unbuilt:
    """Says what every trainer is asked when its rank has joined."""

    old_from_update = False

    def describe(self) -> str:
        return ""


class Shared(RayTrainer):
    """A ``RayTrainer`` in ranks that serve several of them: each call brings its own to the fore."""

    numbers = itertools.count()
    unused: ClassVar[list[int]] = []

    def __init__(self, ranks: RayTrainer, model: LoadedModel, **settings: Any) -> None:
        self.config, self.notices, self.workers = ranks.config, ranks.notices, ranks.workers
        self.version, self.changed, self.model = 0, False, model
        self.number = next(self.numbers)
        drop = [self.unused.pop() for _ in range(len(self.unused))]
        given = rank_process.packed(model, settings.pop("reference", None))
        self.old_from_update, self.lines = self._everywhere(build, self.number, drop, given, settings)[0]

    def __del__(self) -> None:
        self.unused.append(self.number)

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        if method != "__ray_call__":
            super().call_all("__ray_call__", choose, self.number)
        return super().call_all(method, *arguments)

    def inside(self, name: str, *args: Any) -> Any:
        """A function of ``rank_process`` on this trainer, in every rank."""
        first, *others = self._everywhere(ask, name, self.number, args)
        assert all(alike(first, other) for other in others), f"ranks differ in {name}"
        return first

    def draw(self, count: int) -> list[Tensor]:
        """Numbers of torch's generator in each rank."""
        return self._everywhere(draw, count)

    def _everywhere(self, function: Any, *args: Any) -> list[Any]:
        return asyncio.run(self._ask("test", "__ray_call__", function, *args))


def build(
    actor: Any, number: int, drop: list[int], given: bytes, settings: dict[str, Any]
) -> tuple[bool, list[str]]:
    """In a rank: one more trainer."""
    trainers = actor.__dict__.setdefault("trainers", {})
    for old in drop:
        trainers.pop(old, None)
    model, reference = pickle.loads(given)
    trainer = trainers[number] = ShardedTrainer(model, group=actor.group, reference=reference, **settings)
    return trainer.old_from_update, trainer.describe().splitlines()


def choose(actor: Any, number: int) -> None:
    """In a rank: what is asked next is asked of this trainer."""
    sources = actor.__dict__.setdefault("sources", {})
    sources[actor.__dict__.get("chosen")] = actor.source
    actor.chosen, actor.source = number, sources.get(number, ())
    actor.trainer = actor.trainers[number]


def ask(actor: Any, name: str, number: int, args: tuple[Any, ...]) -> Any:
    """In a rank: a function of ``rank_process``."""
    return getattr(rank_process, name)(rank_process.Place(actor.group, actor.trainers), number, *args)


def draw(_: Any, count: int) -> Tensor:
    return torch.rand(count)


@contextlib.contextmanager
def ray_ranks() -> Iterator[RayTrainer]:
    """Ranks that have met, in a session of Ray of their own."""
    config = ClusterConfig(trainers=SIZE)
    with Cluster(config) as cluster:
        places = cluster.reserve(SIZE, cluster.need("cpu"), "PACK")
        ranks = RayTrainer(NothingYet(), places, config, Notices())
        asyncio.run(ranks.assemble())
        yield ranks
        ranks.close()
