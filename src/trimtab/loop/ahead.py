"""Collection of later steps beside the training of earlier ones: one task, one step after the other.

It has a state of its own (``LoopState.scout``); what it did reaches the loop's state with each step that is
taken. So the loop's state is always that of a run which has collected just what it has trained, a
checkpoint of it with the queue is whole at any moment, and a collection that a crash cuts off has never
been counted: its prompts come again.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from trimtab.config import Run
from trimtab.data.selection import Selection
from trimtab.loop import learning, observe
from trimtab.loop.checks import SelfChecks
from trimtab.loop.collect import collect
from trimtab.loop.collected import Collected
from trimtab.loop.machines import Machines
from trimtab.loop.staleness import Bound
from trimtab.loop.state import LoopState
from trimtab.types import Draw, ScoredGroup

T = TypeVar("T")


class Ahead:
    """Collects steps in order while ``admit`` lets it; ``take`` hands them over. Close it when done.

    Whoever waits here gets a fault of the collection as it was raised, at once. ``still`` is held while the
    engine's weights must stay what they are.
    """

    def __init__(
        self,
        run: Run,
        selection: Selection | None,
        machines: Machines,
        state: LoopState,
        checks: SelfChecks,
        bound: Bound,
    ) -> None:
        self.bound = bound
        self.still = asyncio.Lock()
        self.waited = 0.0
        """Seconds that the loop has waited here."""
        self._run, self._selection, self._machines, self._checks = run, selection, machines, checks
        self._state, self._scout = state, state.scout()
        self._next = state.counters.step + len(state.queue)
        self._delivered, self._limit = 0, 0
        self._collecting = False
        self._waits_since: float | None = None
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._collect_all())

    async def admit(self, delivered: int) -> None:
        """The engine holds the weights of ``delivered`` trained steps."""
        self._delivered = delivered
        self._limit = min(self.bound.admitted(delivered), self._run.run.steps)
        await self._tell()

    async def take(self) -> tuple[Collected, observe.Pace]:
        """The loop's next step, out of the queue, with its effect on the loop's state; and how it was waited
        for.
        """
        queue, before = len(self._state.queue), self.waited
        await self._wait(lambda: bool(self._state.queue))
        found = self._state.queue.pop(0)
        self._state.take_over(found)
        return found, observe.Pace(queue, self.waited - before)

    async def quiet(self) -> None:
        """Until nothing is sampled. Where answers are drained all that is admitted is collected first, so
        that what comes next does not depend on the moment; elsewhere no further collection begins before
        ``admit``.
        """
        if self.bound.in_flight:
            self._limit = self._next + self._collecting
        await self._wait(lambda: not self._collecting and self._next >= self._limit)

    def again(self, stale: list[ScoredGroup]) -> None:
        """Have the prompts of these groups drawn again, before any other."""
        for scored in stale:
            self._state.counters.redraws += 1
            draw = Draw(scored.group.prompt, -self._state.counters.redraws)
            self._state.again.append(draw)
            self._scout.again.append(draw)

    async def alongside(self, work: Coroutine[Any, Any, T]) -> T:
        """``work``, unless collection fails before it is done: then that fault, at once."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self._task.done():
                self._task.result()  # raises, unless every step is collected
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End the collection, whatever it is at. Its faults have been raised, or concern nobody any more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _wait(self, ready: Callable[[], bool]) -> None:
        began = self._waits_since = time.perf_counter()
        try:
            await self.alongside(self._until(ready))
        finally:
            self.waited += time.perf_counter() - began
            self._waits_since = None

    async def _until(self, ready: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(ready)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _training(self) -> float:
        """A clock that stands while the loop waits here."""
        now = time.perf_counter()
        return now - self.waited - (now - self._waits_since if self._waits_since is not None else 0.0)

    async def _collect_all(self) -> None:
        while self._next < self._run.run.steps:
            began = time.perf_counter()
            await self._until(lambda: self._next < self._limit)
            self._collecting = True
            waited, trained = time.perf_counter() - began, self._training()
            found = await self._collect()
            found.waited, found.hidden = waited, self._training() - trained
            self._state.queue.append(found)
            self._next += 1
            self._collecting = False
            await self._tell()

    async def _collect(self) -> Collected:
        """The next step, looked at for faults of grading and, once, of sampling."""
        engine, number = self._machines.engine, self._next
        wanted = learning.wanted_of(self._run, ahead=number - self._delivered)
        version = engine.version
        found = await collect(engine, self._machines.rubric, self._scout, self._selection, wanted)
        step = observe.Step(number, version, wanted.groups, wanted.sampling.max_new_tokens, found)
        async with self.still:
            unchanged = engine.version == version
            await learning.vet(self._machines, self._checks, step, replace(wanted, ahead=0), alone=unchanged)
        self._scout.counters.step += 1
        return found
