"""The engines' processes: who is there, who is on its way, and how often one may be replaced."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from typing import Any

import ray

from trimtab.config.cluster import ClusterConfig
from trimtab.distributed.cluster import Places
from trimtab.distributed.engine_actor import EngineActor
from trimtab.distributed.faults import is_fault, reason, said
from trimtab.distributed.notices import Notices
from trimtab.distributed.specs import EngineSpec
from trimtab.distributed.workers import Worker, start
from trimtab.errors import RunError, WorkerLostError
from trimtab.record.events import Event

POLL = 0.1
CLOSE_SECONDS = 10.0


class Crew:
    """The engines of a pool, each in its place.

    coming: started, not ready yet. present: ready, perhaps without the current weights.
    serving: has the current weights and samples.
    """

    def __init__(self, spec: EngineSpec, places: Places, config: ClusterConfig, notices: Notices) -> None:
        self.spec, self.places, self.config, self.notices = spec, places, config, notices
        self.workers = [Worker(f"engine {index}") for index in range(config.engines)]
        self.serving: list[Worker] = []
        self.coming: dict[Worker, Any] = {}
        self.losses = 0
        self.dtype = ""
        for worker in self.workers:
            self._start(worker)

    async def assemble(self) -> None:
        """Wait for every engine; one that cannot be built is tried again like one that died.

        Raises: the error that an engine raised for its user; WorkerLostError.
        """
        while self.coming:
            await self._arrivals()
            await asyncio.sleep(POLL)

    async def present(self) -> list[Worker]:
        """The engines that are ready, waited for while there is none."""
        await self._arrivals()
        while len(self.coming) == len(self.workers):
            await asyncio.sleep(POLL)
            await self._arrivals()
        return [worker for worker in self.workers if worker not in self.coming]

    async def returned(self) -> list[Worker]:
        """The engines that are ready and do not serve yet."""
        await self._arrivals()
        return [w for w in self.workers if w not in self.coming and w not in self.serving]

    def serve(self, worker: Worker) -> None:
        """It has the current weights now."""
        if worker not in self.serving and worker not in self.coming:
            self.serving.append(worker)

    def lose(self, worker: Worker, actor: Any, why: str, *, draws: int) -> None:
        """Say that an engine is gone, and start another one in its place; once for each process.

        Raises: WorkerLostError when that was one time too many; RunError where the watchdog gave it up.
        """
        if worker.actor is not actor:
            return
        if worker in self.serving:
            self.serving.remove(worker)
        name, hopeless = str(worker), worker.hopeless
        ray.kill(worker.actor)
        if hopeless:
            worker.hopeless = False
            raise RunError(why)
        self._count(name, worker, why, draws)

    def close(self) -> None:
        """End all engines, with what they have started."""
        ending = [worker.actor.close.remote() for worker in self.serving]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=CLOSE_SECONDS)
        for worker in self.workers:
            worker.rest()
            ray.kill(worker.actor)
        self.serving, self.coming = [], {}

    def _count(self, name: str, worker: Worker, why: str, draws: int) -> None:
        self.losses += 1
        told = f"{name} was lost: {why}"
        if self.losses > self.config.restarts:
            raise WorkerLostError(
                f"{told}\nthat is loss {self.losses} of an engine, and cluster.restarts = "
                f"{self.config.restarts}; resume the run when its cause is mended"
            )
        redrawn = f"; {draws} of its prompts are drawn again" if draws else ""
        self.notices.tell(
            Event.ENGINE_LOST, f"{told}{redrawn}; it is started anew", worker=name, reason=why, draws=draws
        )
        self._start(worker)

    def _start(self, worker: Worker) -> None:
        index = self.workers.index(worker)
        worker.actor = actor = start(EngineActor, self.places.options(index), self.spec)
        worker.about, worker.condemned, worker.hopeless = None, "", False
        self.coming[worker] = actor.build.remote()
        worker.begin("start")

        def built(_: object) -> None:
            """Nothing is asked of it until the driver looks again, which may be a long training later."""
            if worker.actor is actor and worker in self.coming:
                worker.rest()

        self.coming[worker].future().add_done_callback(built)

    async def _arrivals(self) -> None:
        """Take in the engines that have become ready since."""
        for worker, reference in list(self.coming.items()):
            if not ray.wait([reference], timeout=0)[0]:
                continue
            try:
                worker.about, worker.ranks, self.dtype = await reference
            except Exception as error:
                own = said(error)
                if own is not None:
                    raise own from error
                if not is_fault(error):
                    raise
                del self.coming[worker]
                self._count(worker.name, worker, reason(worker, error), 0)
                continue
            del self.coming[worker]
            worker.rest()
            worker.starts += 1
            about = worker.about
            if worker.starts > 1 and about is not None:
                self.notices.tell(
                    Event.ENGINE_RESTARTED,
                    f"{worker} is there again",
                    worker=worker.name,
                    process=about.pid,
                    node=about.address,
                )
