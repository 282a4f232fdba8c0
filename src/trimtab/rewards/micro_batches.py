"""Questions to a model, answered in batches: those that come one by one, and those that come together.

Single questions that wait when a batch begins go into it, longest first, so that rows of like length share
padding; while one batch is worked on in a thread, the next one gathers. There is no clock in it: nobody waits
for company. Questions that come together are batched among themselves only: which other ones are under way is
chance, and the last bits of a score depend on the batch, so a run could not be repeated exactly otherwise.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Question = TypeVar("Question")

QUIET_TURNS = 3
"""Turns of the event loop without a new question after which a batch is no longer held open."""


class MicroBatches(Generic[Question]):
    """``ask`` from any number of tasks, ``ask_all`` for a group; ``work`` answers a list, in a thread.

    size: of a question, in tokens. rows, tokens: the most of one batch, padding included; a question that is
    larger alone gets a batch of its own. timeout: seconds for one batch. An exception of ``work`` is raised
    in every task of that batch. Belongs to no event loop.
    """

    def __init__(
        self,
        work: Callable[[list[Question]], Sequence[float]],
        *,
        size: Callable[[Question], int],
        rows: int,
        tokens: int,
        timeout: float,
    ) -> None:
        self._work, self._size = work, size
        self._rows, self._tokens, self._timeout = rows, tokens, timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-reward-model")
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Question]]
        self._queues = weakref.WeakKeyDictionary()

    async def ask(self, question: Question) -> float:
        """Raises TimeoutError when its batch took too long."""
        loop = asyncio.get_running_loop()
        queue = self._queues.setdefault(loop, _Queue())
        answer: asyncio.Future[float] = loop.create_future()
        queue.waiting.append((question, answer))
        if queue.worker is None or queue.worker.done():
            queue.worker = loop.create_task(self._drain(queue))
        return await answer

    async def ask_all(self, questions: Sequence[Question]) -> list[float | Exception]:
        """An answer or a fault for each, in order; the batches depend on these questions alone."""
        queue = self._queues.setdefault(asyncio.get_running_loop(), _Queue())
        order = sorted(range(len(questions)), key=lambda i: -self._size(questions[i]))
        found: dict[int, float | Exception] = {}
        while order:
            count = self._fitting([questions[i] for i in order])
            batch, order = order[:count], order[count:]
            try:
                answers = await self._answered(queue, [questions[i] for i in batch])
                found.update(zip(batch, answers, strict=True))
            except Exception as fault:
                found.update(dict.fromkeys(batch, fault))
        return [found[i] for i in range(len(questions))]

    async def _answered(self, queue: _Queue[Question], batch: list[Question]) -> Sequence[float]:
        """One batch, when its turn comes; the limit does not count the waiting for it."""
        async with queue.turn:
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._work, batch)
            async with asyncio.timeout(self._timeout):
                return await work

    async def _drain(self, queue: _Queue[Question]) -> None:
        await _gathered(queue)
        while batch := self._next(queue):
            try:
                found = await self._answered(queue, [question for question, _ in batch])
            except Exception as fault:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(fault)
                continue
            for (_, answer), value in zip(batch, found, strict=True):
                if not answer.done():
                    answer.set_result(value)

    def _next(self, queue: _Queue[Question]) -> list[tuple[Question, asyncio.Future[float]]]:
        """The longest questions that wait, as many as one batch holds; those given up are dropped."""
        waiting = [pair for pair in queue.waiting if not pair[1].done()]
        waiting.sort(key=lambda pair: -self._size(pair[0]))
        count = self._fitting([question for question, _ in waiting])
        queue.waiting = waiting[count:]
        return waiting[:count]

    def _fitting(self, longest_first: list[Question]) -> int:
        """How many of them one batch holds; at least one, where there is one."""
        if not longest_first:
            return 0
        widest = max(1, self._size(longest_first[0]))
        return max(1, min(self._rows, self._tokens // widest, len(longest_first)))


class _Queue(Generic[Question]):
    def __init__(self) -> None:
        self.waiting: list[tuple[Question, asyncio.Future[float]]] = []
        self.worker: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()


async def _gathered(queue: _Queue[Question]) -> None:
    """Let the tasks that are ready to ask do so first."""
    quiet = 0
    while quiet < QUIET_TURNS:
        before = len(queue.waiting)
        await asyncio.sleep(0)
        quiet = quiet + 1 if len(queue.waiting) == before else 0
