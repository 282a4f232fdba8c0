"""Grades of equal questions, worked out once: a policy that learns writes the same program many times."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

from trimtab.types import Grade


class Repeats:
    """The newest ``size`` grades by what was asked; 0 keeps none.

    Whoever asks what is being worked out waits for it. A fault, or a cancelled question, is nobody's
    grade: the next who waits asks anew. For one event loop at a time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: dict[bytes, Grade] = {}
        self._running: dict[bytes, asyncio.Event] = {}

    async def grade(self, asked: Sequence[str], work: Callable[[], Awaitable[Grade]]) -> Grade:
        """What ``work`` returns, or has returned for the same ``asked``."""
        if not self._size:
            return await work()
        key = _digest(asked)
        while (over := self._running.get(key)) is not None:
            await over.wait()
        if key not in self._known:
            self._running[key] = over = asyncio.Event()
            try:
                self._known[key] = await work()
            finally:
                del self._running[key]
                over.set()
            if len(self._known) > self._size:
                del self._known[next(iter(self._known))]
        return self._known[key]


def _digest(asked: Sequence[str]) -> bytes:
    parts = [text.encode("utf-8", "surrogatepass") for text in asked]
    lengths = ",".join(str(len(part)) for part in parts)
    return hashlib.blake2b(b"".join([lengths.encode(), *parts]), digest_size=16).digest()
