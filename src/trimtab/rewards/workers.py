"""A pool of processes that can be killed: for graders whose input comes from a model.

    result = await pool.run("trimtab.rewards.mathematics.symbolic:check", payload, timeout=2.0)

Each call has its own limit, counted from the moment a process begins with it, never while it waits or loads.
A process that exceeds it is killed, with its children, and replaced; the other processes go on meanwhile.
worker_keeper.py has the rules, and how many calls a process is given ahead.
Processes are spawned, not forked (threads of the trainer cannot deadlock them), at the first call; requests
and results are JSON over pipes, nothing is pickled. The pool belongs to no event loop: it may be used from
any thread and any loop, also by several at once.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import importlib.util
import json
import os
import threading
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

from trimtab.rewards.worker_keeper import (
    LOAD_TIMEOUT,
    Call,
    CallQueue,
    Keeper,
    WorkerCrashedError,
    WorkerFaultError,
    WorkerTimeoutError,
)

__all__ = ["WorkerCrashedError", "WorkerFaultError", "WorkerPool", "WorkerTimeoutError", "shared_pool"]

MEMORY = 2 << 30
CLOSING_SECONDS = 5.0


class WorkerPool:
    """``size`` processes at most. Limits in bytes, None for none, for each process:

    memory: its own data (what it allocates), where the system can limit that (Linux).
    address_space: all it maps; large libraries map much more than they use.
    """

    def __init__(
        self, size: int = 2, *, memory: int | None = MEMORY, address_space: int | None = None
    ) -> None:
        self.size = size
        self.memory = memory
        self.address_space = address_space
        self._queue = CallQueue()
        self._pid = os.getpid()
        atexit.register(self.close)

    async def run(self, function: str, payload: Any, timeout: float) -> Any:
        """``function(payload)`` in a process.

        function: ``trimtab.some.module:name``, or ``path/to/file.py:name``; it may be a coroutine function.
        payload, result: what JSON can hold. timeout: seconds.
        Raises WorkerTimeoutError, WorkerCrashedError, WorkerFaultError.
        """
        return await asyncio.wrap_future(self.submit(function, payload, timeout))

    def call(self, function: str, payload: Any, timeout: float) -> Any:
        """The same, waiting in the calling thread."""
        return self.submit(function, payload, timeout).result()

    def submit(self, function: str, payload: Any, timeout: float) -> Future[Any]:
        """The same, as a future; cancelling it before it has begun takes it out of the queue."""
        return self.put(Call(*located(function), payload=json.dumps(payload), timeout=timeout))

    def load(self, call: Call) -> Any:
        """What the ``adapt`` of the call says about its function, from a process that has loaded it.

        Waits in the calling thread. Raises as ``run`` does.
        """
        return self.put(dataclasses.replace(call, payload=None, timeout=LOAD_TIMEOUT)).result()

    def put(self, call: Call) -> Future[Any]:
        """Let a process take this call; its future."""
        if self._pid != os.getpid():  # in a forked child: the threads and pipes are the parent's
            self._queue, self._pid = CallQueue(), os.getpid()
        queue = self._queue
        with queue.lock:
            queue.waiting.append(call)
            keeper = self._keeper(queue)
            if keeper is not None:
                keeper.room = keeper.idle = False
        if keeper is not None and keeper.thread.ident is not None:
            keeper.link.wake()
        elif keeper is not None:
            keeper.thread.start()
        return call.future

    def close(self) -> None:
        """Kills all processes: calls that run crash, waiting ones are cancelled, later ones start anew."""
        queue, self._queue = self._queue, CallQueue()
        with queue.lock:
            queue.closed = True
            waiting = list(queue.waiting)
            queue.waiting.clear()
        for call in waiting:
            call.future.cancel()
        for keeper in queue.keepers:
            keeper.link.strike()
            keeper.link.wake()
        for keeper in queue.keepers:
            if keeper.thread is not threading.current_thread() and keeper.thread.ident is not None:
                keeper.thread.join(CLOSING_SECONDS)

    def _keeper(self, queue: CallQueue) -> Keeper | None:
        """The one to tell of a new call: one with nothing to do, else a new one, else one with room."""
        for keeper in queue.keepers:
            if keeper.idle:
                return keeper
        if len(queue.keepers) < self.size:
            keeper = Keeper(queue, self.memory, self.address_space)
            queue.keepers.append(keeper)
            return keeper
        return next((keeper for keeper in queue.keepers if keeper.room), None)


def located(function: str) -> tuple[str, str]:
    """(file, name) of ``module:name`` inside trimtab or ``file.py:name``. Raises ValueError."""
    place, _, name = function.rpartition(":")
    if place.endswith(".py"):
        return str(Path(place).resolve()), name
    if place.partition(".")[0] != "trimtab":
        raise ValueError(f"a worker runs trimtab.module:name or file.py:name, got {function!r}")
    return _file_of(place), name


@lru_cache
def _file_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    return spec.origin


@lru_cache
def pool_of(size: int, megabytes: int) -> WorkerPool:
    """The one pool of this process with these limits, for functions of users and what they import."""
    return WorkerPool(size, memory=megabytes << 20)


@lru_cache
def shared_pool() -> WorkerPool:
    """The one pool of this process for trimtab's own functions."""
    return WorkerPool(address_space=MEMORY)
