"""The trainer in several processes that share its weights, behind the protocol of one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from ray.exceptions import RayError
from torch import Tensor

from trimtab.config.cluster import ClusterConfig
from trimtab.distributed.cluster import Places
from trimtab.distributed.delivery import MEETING_SECONDS
from trimtab.distributed.faults import is_gone, reason, told
from trimtab.distributed.notices import Notices
from trimtab.distributed.rank_actor import RankActor
from trimtab.distributed.specs import TrainerSpec
from trimtab.distributed.transfer import Described, Meeting, Receiver, Traffic
from trimtab.distributed.workers import Worker, start
from trimtab.errors import RunError, WeightsLostError, WorkerLostError
from trimtab.objectives.objective import Objective
from trimtab.record.events import Event
from trimtab.types import Batch, StepReport, WeightSource

MOMENT, GRACE = 1.0, 10.0
"""Seconds for the other ranks to fail too, once one is gone or has met a bug, or has said why it cannot."""

A_DAY = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class RankWeights:
    """The weights of the ranks: described here, sent from rank 0 to whoever meets it there.

    Iterating fetches them one after the other, through such a meeting; it is slow, and meant for checks.
    Whoever stops early leaves the meeting too; the ranks gather to the end all the same.
    """

    described: Sequence[Described]
    version: int
    origin: RayTrainer

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        meeting = self.origin.appoint(2)
        opened = self.origin.call_all("open_sender", meeting)
        receiver = Receiver(meeting, 1)
        try:
            ray.get(opened)
            sent = self.origin.call_all("send", meeting, self.version)
            yield from receiver.receive(self.described)
            ray.get(sent)
        finally:
            receiver.close()
            with contextlib.suppress(RayError):  # ranks that are gone have left already
                ray.get(self.origin.call_all("close_sender", meeting))


class RayTrainer:
    """A ``Trainer`` whose ranks are actors. Every call goes to all of them, rank 0 answers.

    A rank that dies, hangs or breaks takes the weights with it: all ranks are ended, and WeightsLostError
    says why, with the rank's own traceback. What a rank raises for its user comes here as it is.
    """

    def __init__(self, spec: TrainerSpec, places: Places, config: ClusterConfig, notices: Notices) -> None:
        self.config, self.notices = config, notices
        self.workers = [Worker(f"trainer rank {rank}") for rank in range(config.trainers)]
        for rank, worker in enumerate(self.workers):
            worker.actor = start(RankActor, places.options(rank), spec, rank)
        self.version = 0
        self.changed = False
        self.old_from_update = False
        self.lines: list[str] = []

    async def assemble(self) -> None:
        """Let the ranks meet and load the model. Raises: what a rank raised; WeightsLostError."""
        for worker, about in zip(self.workers, await self._ask("start", "about"), strict=True):
            worker.about = about
        limit = self.config.give_up or A_DAY
        host, port = await self.workers[0].actor.open_store.remote(limit)
        facts = await self._ask("start", "join", host, port, len(self.workers), limit)
        self.old_from_update, self.lines = facts[0]["old_from_update"], facts[0]["lines"]

    def describe(self) -> str:
        """What is optimised and how, one line an owner."""
        return "\n".join(self.lines)

    def unchanged(self, version: int) -> bool:
        """Whether the ranks still hold the weights that were published as ``version``."""
        return self.version == version and not self.changed

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """See ``Trainer``."""
        filled = (await self._ask("annotate", "annotate", ray.put(batch), columns))[0]
        return batch.with_columns(**filled)

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``Trainer``."""
        self.changed = True
        return (await self._ask("update", "update", ray.put(batch), objective))[0]

    async def publish(self) -> tuple[WeightSource, int]:
        """See ``Trainer``. The source says where it lives; it is not here."""
        announced, self.version = (await self._ask("sync", "publish"))[0]
        self.changed = False
        return RankWeights(announced, self.version, self), self.version

    async def save(self, path: Path) -> None:
        """See ``Trainer``. The ranks write; the path must mean the same folder on their machines."""
        await self._ask("save", "save", path.resolve())

    async def load(self, path: Path) -> None:
        """See ``Trainer``."""
        self.version = (await self._ask("load", "load", path.resolve()))[0]
        self.changed = True

    def close(self) -> None:
        """End all ranks."""
        for worker in self.workers:
            worker.rest()
            ray.kill(worker.actor)

    # ------------------------------------------------------------------ sending, as an ``Origin``

    async def meet(self, world: int) -> tuple[Meeting, Awaitable[None]]:
        """See ``Origin``."""
        meeting = await asyncio.to_thread(self.appoint, world, self.config.transfer)
        return meeting, self._open(meeting)

    async def send(self, meeting: Meeting, version: int) -> Traffic:
        """See ``Origin``."""
        return (await self._ask("sync", "send", meeting, version))[0]

    async def leave(self, meeting: Meeting) -> None:
        """See ``Origin``. Ranks that are gone have left already."""
        with contextlib.suppress(RayError):
            await self.workers[0].actor.close_sender.remote(meeting)

    def appoint(self, world: int, backend: Literal["gloo", "nccl"] = "gloo") -> Meeting:
        """A meeting where rank 0 lives."""
        host, port = ray.get(self.workers[0].actor.appoint.remote())
        return Meeting(host, port, world, timeout=MEETING_SECONDS, backend=backend)

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        return [getattr(worker.actor, method).remote(*arguments) for worker in self.workers]

    async def _open(self, meeting: Meeting) -> None:
        await self._ask("sync", "open_sender", meeting)

    # ------------------------------------------------------------------ one call

    async def _ask(self, stage: str, method: str, *arguments: Any) -> list[Any]:
        """The answers of all ranks; the first failure ends the wait for the others."""
        for worker in self.workers:
            worker.begin(stage)
        tasks = [asyncio.ensure_future(_awaited(call)) for call in self.call_all(method, *arguments)]
        for worker, task in zip(self.workers, tasks, strict=True):
            task.add_done_callback(lambda _, worker=worker: worker.rest())
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if waiting:
            first = next(end for task in done if (end := task.exception()) is not None)
            _, waiting = await asyncio.wait(waiting, timeout=MOMENT if told(first) is None else GRACE)
        for task in waiting:  # nobody reads what they come to
            task.cancel()
        ends = [task.exception() if task not in waiting else None for task in tasks]
        failures = [(w, end) for w, end in zip(self.workers, ends, strict=True) if end is not None]
        if not failures:
            return [task.result() for task in tasks]
        worker, error = min(failures, key=lambda failure: _rank_of(failure[1]))
        own = told(error)
        if own is None or isinstance(own, WeightsLostError):
            raise self._lost(worker, error)
        if waiting:  # the others wait for a rank that has left the stage
            self.close()
        raise own from error

    def _lost(self, worker: Worker, error: BaseException) -> RunError:
        why, hopeless = reason(worker, error), worker.hopeless
        self.close()
        if hopeless:
            return RunError(why)
        self.notices.tell(
            Event.RANKS_LOST,
            f"{worker} was lost: {why}; all ranks were ended",
            worker=str(worker),
            reason=why,
        )
        return WeightsLostError(
            f"{worker} was lost: {why}\nthe weights since the last checkpoint went with it; resume the run"
        )


def _rank_of(error: BaseException) -> int:
    """Which failure tells most, the lowest first: a process that is gone, a bug, broken ranks, a bug that all
    ranks agree on, an error of the user's.
    """
    own = told(error)
    if own is None:
        return 0 if is_gone(error) else 1
    return 2 if isinstance(own, WeightsLostError) else 3 if isinstance(own, WorkerLostError) else 4


async def _awaited(reference: Any) -> Any:
    return await reference
