"""Sharded trainers for tests: ranks in processes of their own (or one in this), and one trainer that is all.

Processes of one size are started once a session and shared; they come from a server that has imported
everything already.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import atexit
import dataclasses
import itertools
import multiprocessing
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tests import rank_process
from trimtab.models import LoadedModel
from trimtab.objectives.objective import Objective
from trimtab.trainer.sharded_group import join, open_store
from trimtab.types import Batch, StepReport, WeightSource

PROCESSES = multiprocessing.get_context("forkserver")
PRELOAD = ["trimtab.launch", "tests.tiny_runs", "tests.rank_process"]
PATIENCE = 120.0
"""Seconds: tests that are not about time-outs must not meet one."""


class Ranks(Protocol):
    """Runs a function of ``rank_process`` in every rank; what each gave, by rank."""

    size: int

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]: ...


class Spawned:
    """Ranks in processes of their own."""

    def __init__(self, size: int, timeout: float = PATIENCE) -> None:
        PROCESSES.set_forkserver_preload(PRELOAD)
        self.size = size
        self.pipes, self.processes = [], []
        for rank in range(size):
            here, there = PROCESSES.Pipe()
            process = PROCESSES.Process(
                target=rank_process.serve, args=(rank, size, there, timeout), daemon=True
            )
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)
        port = self.pipes[0].recv()
        for pipe in self.pipes:
            pipe.send(port)
        self.pids = [pipe.recv() for pipe in self.pipes]

    def ask(self, function: Callable[..., Any], *args: Any) -> None:
        self.ask_of(range(self.size), function, *args)

    def ask_of(self, ranks: Iterable[int], function: Callable[..., Any], *args: Any) -> None:
        """Ask only some of the ranks."""
        message = pickle.dumps((function, args))
        for rank in ranks:
            self.pipes[rank].send_bytes(message)

    def answer(self, rank: int) -> tuple[bool, Any]:
        """Whether the function came to its end in this rank, and what it gave or raised."""
        return pickle.loads(self.pipes[rank].recv_bytes())

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        self.ask(function, *args)
        answers = [self.answer(rank) for rank in range(self.size)]
        faults = [value for done, value in answers if not done]
        if faults:
            assert len({str(fault) for fault in faults}) == 1, "all ranks must raise the same"
            assert len(faults) == self.size, "all ranks must raise, or none"
            raise faults[0]
        return [value for _, value in answers]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()


class Here:
    """One rank, in the test's own process."""

    size = 1

    def __init__(self) -> None:
        group = join(0, 1, open_store(timeout=PATIENCE), timeout=PATIENCE)
        self.place = rank_process.Place(group, {})

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return [function(self.place, *args)]

    def close(self) -> None:
        self.place.group.close()


STARTED: dict[int, Spawned] = {}


def spawned(size: int) -> Spawned:
    """The session's ranks of this size."""
    if size not in STARTED:
        STARTED[size] = Spawned(size)
        atexit.register(STARTED[size].close)
    return STARTED[size]


class Spread:
    """Implements ``Trainer`` by a ShardedTrainer in every rank, which must all say the same."""

    numbers = itertools.count()
    unused: ClassVar[dict[int, list[int]]] = {}

    def __init__(self, ranks: Ranks, model: LoadedModel, **settings: Any) -> None:
        self.ranks, self.model = ranks, model
        self.number = next(self.numbers)
        self.version = 0
        reference = settings.pop("reference", None)
        given = rank_process.packed(model, reference)
        drop = self.unused.pop(id(ranks), [])
        self.old_from_update, self.words = self._all(rank_process.build, drop, given, settings)

    def __del__(self) -> None:
        self.unused.setdefault(id(self.ranks), []).append(self.number)

    def _all(self, function: Callable[..., Any], *args: Any) -> Any:
        answers = self.ranks.run(function, self.number, *args)
        for other in answers[1:]:
            assert alike(answers[0], other), f"ranks differ in {function.__name__} {args[:1]}"
        return answers[0]

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        return self._all(rank_process.call, "annotate", batch, columns)

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        return self._all(rank_process.call, "update", batch, objective)

    async def publish(self) -> tuple[WeightSource, int]:
        source, self.version = self._all(rank_process.publish)
        return source, self.version

    async def save(self, path: Path) -> None:
        self._all(rank_process.call, "save", path)

    async def load(self, path: Path) -> None:
        self._all(rank_process.call, "load", path)
        self.version = self._all(rank_process.state)[0]

    def inside(self, name: str, *args: Any) -> Any:
        """A function of ``rank_process`` on this trainer, in every rank."""
        return self._all(getattr(rank_process, name), *args)

    def draw(self, count: int) -> list[Tensor]:
        """Numbers of torch's generator in each rank."""
        return self.ranks.run(rank_process.draw, count)


def alike(left: Any, right: Any) -> bool:
    """Equal to the bit, NaN like NaN."""
    if isinstance(left, Tensor):
        return left.shape == right.shape and torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))
    if dataclasses.is_dataclass(left):
        return all(alike(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right) or (left != left and right != right)


class OverRanks:
    """A kind of trainer under contract: ``ShardedTrainer`` over this many ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.here: Here | None = None

    def __call__(self, model: LoadedModel, **settings: Any) -> Spread:
        if self.size > 1:
            return Spread(spawned(self.size), model, **settings)
        self.here = self.here or Here()
        return Spread(self.here, model, **settings)

    def close(self) -> None:
        if self.here is not None:
            self.here.close()
        self.here = None
