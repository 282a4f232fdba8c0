"""Weights from wherever they live to a set of engines, by one broadcast."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

from trimtab.distributed.cluster import host_address
from trimtab.distributed.faults import is_lost
from trimtab.distributed.transfer import Described, Meeting, Sender, Traffic, described, free_port
from trimtab.distributed.workers import Worker
from trimtab.types import WeightSource

MEETING_SECONDS = 60.0


class Origin(Protocol):
    """The sending end of a delivery."""

    async def meet(self, world: int) -> tuple[Meeting, Awaitable[None]]:
        """An appointment, and what is to be awaited for the sender to be there."""
        ...

    async def send(self, meeting: Meeting, version: int) -> Traffic: ...

    async def leave(self, meeting: Meeting) -> None: ...


@runtime_checkable
class RemoteSource(Protocol):
    """Weights that another process holds: ``described`` without touching them, ``origin`` sends them."""

    described: Sequence[Described]
    origin: Origin


class DriverOrigin:
    """Weights of the driver's own trainer."""

    def __init__(self) -> None:
        self.source: WeightSource = ()
        self._senders: dict[Meeting, Sender] = {}

    async def meet(self, world: int) -> tuple[Meeting, Awaitable[None]]:
        host = host_address()
        meeting = Meeting(host, free_port(host), world, timeout=MEETING_SECONDS)
        return meeting, asyncio.to_thread(self._open, meeting)

    def _open(self, meeting: Meeting) -> None:
        self._senders[meeting] = Sender(meeting)

    async def send(self, meeting: Meeting, version: int) -> Traffic:
        return await asyncio.to_thread(self._senders[meeting].send, self.source)

    async def leave(self, meeting: Meeting) -> None:
        if (sender := self._senders.pop(meeting, None)) is not None:
            sender.close()


class BrokenError(Exception):
    """A delivery failed. ``lost``: the engines that are gone, their actors, and how the calls ended."""

    def __init__(self, lost: Sequence[tuple[Worker, Any, BaseException]], error: BaseException) -> None:
        super().__init__(str(error))
        self.lost, self.error = lost, error


class Delivery:
    """An open meeting between an origin and engines; it serves as long as both stay the same.

    Made by ``open``. Raises: BrokenError when an engine is gone or the group broke; make another one then.
    """

    def __init__(self, origin: Origin, meeting: Meeting, receivers: Sequence[Worker]) -> None:
        self.origin, self.meeting = origin, meeting
        self.receivers = list(receivers)
        self.actors = [worker.actor for worker in receivers]

    @classmethod
    async def open(cls, origin: Origin, receivers: Sequence[Worker]) -> Delivery:
        await _present(receivers)
        first = list(accumulate((worker.ranks for worker in receivers), initial=1))
        meeting, opened = await origin.meet(first[-1])
        delivery = cls(origin, meeting, receivers)
        calls = [w.actor.open_link.remote(meeting, r) for w, r in zip(receivers, first, strict=False)]
        await delivery._all(opened, calls)
        return delivery

    def serves(self, origin: Origin, receivers: Sequence[Worker]) -> bool:
        return self.origin is origin and self.actors == [worker.actor for worker in receivers]

    async def push(self, source: WeightSource, version: int) -> Traffic:
        """Deliver these weights to every receiver, and return what the sender carried."""
        announced = described(source)
        calls = [worker.actor.receive_weights.remote(announced, version) for worker in self.receivers]
        return await self._all(self.origin.send(self.meeting, version), calls)

    async def close(self) -> None:
        await self.origin.leave(self.meeting)

    async def _all(self, sending: Awaitable[Any], calls: Sequence[Any]) -> Any:
        """Both ends, or BrokenError. After a first failure the sender leaves, so that nobody waits for it."""
        tasks = [asyncio.ensure_future(sending), *(asyncio.ensure_future(_awaited(call)) for call in calls)]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if not waiting and not any(task.exception() for task in done):
            return tasks[0].result()
        await self.origin.leave(self.meeting)
        await asyncio.wait(tasks, timeout=MEETING_SECONDS + 5)
        ends = [task.exception() if task.done() else TimeoutError("no answer") for task in tasks]
        lost = [
            (worker, actor, end)
            for worker, actor, end in zip(self.receivers, self.actors, ends[1:], strict=True)
            if isinstance(end, TimeoutError) or (end is not None and is_lost(end))
        ]
        raise BrokenError(lost, lost[0][2] if lost else next(end for end in ends if end is not None))


async def _present(receivers: Sequence[Worker]) -> None:
    """Raises BrokenError for those that are gone: a meeting would wait for them until its time-out."""
    actors = [worker.actor for worker in receivers]
    calls = [_awaited(actor.pulse.remote()) for actor in actors]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    lost = [
        (worker, actor, end)
        for worker, actor, end in zip(receivers, actors, ends, strict=True)
        if isinstance(end, BaseException)
    ]
    if lost:
        raise BrokenError(lost, lost[0][2])


async def _awaited(reference: Any) -> Any:
    return await reference
