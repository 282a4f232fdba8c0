"""Several engines in processes of their own, behind the protocol of one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch

from trimtab.config.cluster import ClusterConfig
from trimtab.distributed.crew import Crew
from trimtab.distributed.deals import Deal, Deals
from trimtab.distributed.delivery import BrokenError, Delivery, DriverOrigin, Origin, RemoteSource
from trimtab.distributed.faults import is_fault, reason, said
from trimtab.distributed.specs import EngineSpec
from trimtab.distributed.transfer import Traffic
from trimtab.distributed.workers import Worker
from trimtab.errors import DataError, RunError, WeightsLostError
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import MODEL_CONTEXT, refuse
from trimtab.types import Draw, Group, Rollout, WeightSource

POLL = 0.2
"""Seconds after which a request looks for engines that have come back."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of each draw."""

    n: int
    sampling: Sampling
    seed: int
    purpose: str


@dataclass(frozen=True, slots=True, eq=False)
class Came:
    """Something from an engine: a group, or, with no ``rollouts``, the end of a deal with its error."""

    worker: Worker
    actor: Any
    deal: Deal
    key: str = ""
    rollouts: tuple[Rollout, ...] = ()
    error: BaseException | None = None


class EnginePool:
    """A ``RolloutEngine`` over the engines of a crew.

    A step's draws are cut into deals; whoever has room takes the next one, so a slow engine keeps nobody
    waiting. What an engine leaves unfinished when it dies is dealt again. Rollouts carry their own seeds,
    so that the same answers come whoever samples them, and a group that came twice counts once.

    context: tokens of prompt and answer together; limit: what that is, for who goes beyond it.
    unchanged: whether the trainer still holds the weights of a version. An engine that comes back in the
        middle of a step is given them then, and waits for the next ones otherwise. Where steps overlap, the
        weights of the driver's own trainer are copied at each delivery, so that they are there.
    """

    def __init__(
        self,
        crew: Crew,
        spec: EngineSpec,
        config: ClusterConfig,
        *,
        context: int,
        unchanged: Callable[[int], bool],
        limit: str = MODEL_CONTEXT,
    ) -> None:
        self.crew, self.spec, self.config = crew, spec, config
        self.version = 0
        self._context, self._limit, self._unchanged = context, limit, unchanged
        self._source: WeightSource | None = None
        self._copied = False
        self._driver = DriverOrigin()
        self._delivery: Delivery | None = None
        self._running: dict[Worker, int] = {}
        self.traffic = Traffic()

    @property
    def dtype(self) -> torch.dtype:
        """See ``RolloutEngine``."""
        return getattr(torch, self.crew.dtype)

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        """See ``RolloutEngine``.

        Raises: DataError for a prompt that is empty or too long, before anything is sampled; RunError,
        naming the engine, when log-probabilities are not finite; WorkerLostError when engines die more often
        than ``cluster.restarts`` allows, or when none is left that has the weights.
        """
        refuse(draws, n, sampling, self._context, self._limit)
        deals = Deals(draws, self.spec.draws_at_once(len(draws), self.config.engines))
        room = self.spec.deals_at_once(len(draws), n, self.config.engines)
        asked, inbox = Asked(n, sampling, seed, purpose), asyncio.Queue[Came]()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while deals.left:
                await self._welcome()
                for worker, deal in self._dealt(deals, room):
                    task = asyncio.create_task(self._work(worker, deal, asked, inbox))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                try:
                    came = await asyncio.wait_for(inbox.get(), POLL)
                except TimeoutError:
                    continue
                group = self._take(came, deals)
                if group is not None:
                    yield group
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def load_weights(self, source: WeightSource, version: int) -> None:
        """Broadcast the weights to all engines at once, from wherever they live.

        An engine that fails meanwhile is started anew and comes later. Raises: RunError when the source
        fails; WorkerLostError when engines fail more often than ``cluster.restarts`` allows.
        """
        self._copied = self.config.staleness > 0 and not isinstance(source, RemoteSource)
        if self._copied:
            source = [(name, tensor.detach().clone()) for name, tensor in source]
        self._source = source
        faults = 0
        while True:
            ready = await self.crew.present()
            try:
                await self._deliver(ready, source, version)
            except BrokenError as broken:
                faults += not broken.lost
                self._mourn(broken)
                if faults > 1:
                    raise (
                        said(broken.error) or RunError(f"weights did not arrive: {broken}")
                    ) from broken.error
                continue
            break
        self.version = version
        for worker in ready:
            self.crew.serve(worker)

    def close(self) -> None:
        """End the engines."""
        self._delivery = None
        self.crew.close()

    # --------------------------------------------------------------------------- one request

    def _dealt(self, deals: Deals, room: int) -> list[tuple[Worker, Deal]]:
        """Deals for the engines that have room, the least busy first."""
        given: list[tuple[Worker, Deal]] = []
        while deals.waiting:
            free = [w for w in self.crew.serving if self._running.get(w, 0) < room]
            if not free:
                break
            worker = min(free, key=lambda w: self._running.get(w, 0))
            self._running[worker] = self._running.get(worker, 0) + 1
            given.append((worker, deals.take()))
        return given

    async def _work(self, worker: Worker, deal: Deal, asked: Asked, inbox: asyncio.Queue[Came]) -> None:
        """One deal at one engine. Whatever happens, its end is put into the inbox."""
        actor, error = worker.actor, None
        stream = actor.sample.options(num_returns="streaming").remote(
            deal.bare(), asked.n, asked.sampling, asked.seed, asked.purpose
        )
        worker.begin("sample")
        try:
            async for reference in stream:
                key, rollouts = await reference
                worker.moved()
                inbox.put_nowait(Came(worker, actor, deal, key, rollouts))
        except asyncio.CancelledError:
            ray.cancel(stream)
            raise
        except Exception as fault:
            error = fault
        finally:
            self._running[worker] = left = self._running[worker] - 1
            if not left and worker.actor is actor:
                worker.rest()
        inbox.put_nowait(Came(worker, actor, deal, error=error))

    def _take(self, came: Came, deals: Deals) -> Group | None:
        """The group that came, if it is one and new. The end of a deal is dealt with."""
        if came.rollouts:
            _require_finite(came.worker, came.key, came.rollouts)
            draw = deals.arrived(came.deal, came.key)
            return None if draw is None else Group(draw=draw, rollouts=came.rollouts)
        owed = deals.back(came.deal)
        if came.error is None:
            return None
        own = said(came.error)
        if own is not None:
            kind = DataError if isinstance(own, DataError) else RunError
            told = kind(f"{came.worker}: {own}")
            for note in getattr(own, "__notes__", ()):
                told.add_note(note)
            raise told from came.error
        if not is_fault(came.error):
            raise came.error
        self.crew.lose(came.worker, came.actor, reason(came.worker, came.error), draws=owed)
        return None

    async def _welcome(self) -> None:
        """Give engines that have come back the current weights and let them sample."""
        back = await self.crew.returned()
        if not back or self._source is None:
            return
        if self._copied or self._unchanged(self.version):
            try:
                delivery = await Delivery.open(self._origin(self._source), back)
                self.traffic += await delivery.push(self._source, self.version)
                await delivery.close()
            except BrokenError as broken:
                self._mourn(broken)
                return
            for worker in back:
                self.crew.serve(worker)
        elif not self.crew.serving and self.config.in_flight == "drain":
            # the next weights wait for this very step
            raise WeightsLostError(
                f"no engine is left that holds the weights of version {self.version}, and the trainer has "
                "changed them since"
            )

    # --------------------------------------------------------------------------- weights

    def _origin(self, source: WeightSource) -> Origin:
        if isinstance(source, RemoteSource):
            return source.origin
        self._driver.source = source
        return self._driver

    async def _deliver(self, ready: list[Worker], source: WeightSource, version: int) -> None:
        origin = self._origin(source)
        if self._delivery is not None and not self._delivery.serves(origin, ready):
            await self._delivery.close()
            self._delivery = None
        busy = [worker for worker in ready if not worker.doing]
        for worker in busy:
            worker.begin("sync")
        try:
            if self._delivery is None:
                self._delivery = await Delivery.open(origin, ready)
            self.traffic += await self._delivery.push(source, version)
        except BrokenError:
            self._delivery = None
            raise
        finally:
            for worker in busy:
                worker.rest()

    def _mourn(self, broken: BrokenError) -> None:
        for worker, actor, error in broken.lost:
            self.crew.lose(worker, actor, reason(worker, error), draws=0)


def _require_finite(worker: Worker, key: str, rollouts: Sequence[Rollout]) -> None:
    """Raises RunError, naming the engine, where a log-probability is not finite."""
    bad = [r.key for r in rollouts if not bool(np.isfinite(r.logprobs).all())]
    if bad:
        raise RunError(
            f"{worker} returned log-probabilities that are not finite, in {len(bad)} of {len(rollouts)} "
            f"answers to {key}, {bad[0]} among them; the group was not trained on. Look at that machine's "
            "GPU and memory, and at the dtype of the engine; then resume the run"
        )
