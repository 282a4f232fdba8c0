"""An event loop in a thread of its own, for a machine that must outlive its callers' loops."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for callers in any loop. Its own loop turns until ``stop``."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await ``work`` there; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def spawn(
        self, work: Coroutine[Any, Any, None], done: Callable[[BaseException | None], None]
    ) -> Callable[[], None]:
        """Begin ``work`` there and return how to cancel it; ``done`` is called once it has really ended."""
        tasks: list[asyncio.Task[None]] = []

        def ended(task: asyncio.Task[None]) -> None:
            done(None if task.cancelled() else task.exception())

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(ended)

        self.loop.call_soon_threadsafe(begin)
        return lambda: _call(self.loop, lambda: tasks[0].cancel())

    def stop(self) -> None:
        """Stop the loop and wait for the thread."""
        _call(self.loop, self.loop.stop)
        self._thread.join(timeout=10.0)
        if not self._thread.is_alive():
            self.loop.close()


def _call(loop: asyncio.AbstractEventLoop, action: Callable[[], Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(action)
