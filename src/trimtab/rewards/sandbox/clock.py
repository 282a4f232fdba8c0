"""Time as a process had it: what it used of a processor, and how long it waited for one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

LOOK = 0.05
"""Seconds between two looks at the clocks of a process."""
TOGETHER = "the time for all tests together is over"

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Seconds that a process and its descendants ran, and that they were ready but had to wait.

    ``ran`` counts all threads, ``waited`` the first thread of each process.
    """

    ran: float
    waited: float


def usage(pid: int) -> Usage | None:
    """Of this process and its living descendants; None where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ran = (int(fields[11]) + int(fields[12])) / _TICKS
        waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            below = usage(int(child))
            if below is not None:
                ran, waited = ran + below.ran, waited + below.waited
    except (OSError, IndexError, ValueError):
        return None
    return Usage(ran, waited)


class Budget:
    """Seconds for several pieces of work together, as ``Allowance`` counts them. Starting is not counted."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self.used = 0.0

    @property
    def spent(self) -> str | None:
        """Why no further work may begin; None while it may."""
        return TOGETHER if self.used >= self.seconds else None


class Allowance:
    """Time for one piece of work of the process ``pid``, from now on. A context that books it to a budget.

    ``spent`` is the reason why it has used up its time, None while it has not. Processor time decides.
    ``wall`` seconds end a program that sleeps for ever; what it, or one of the ``others`` that it works
    with by turns, waited for a processor does not count, so that a busy machine makes no program wrong.
    """

    def __init__(
        self,
        pid: int,
        seconds: float,
        wall: float,
        *,
        budget: Budget | None = None,
        others: Sequence[int] = (),
    ) -> None:
        self._pids = (pid, *others)
        self._seconds = seconds
        self._wall = wall
        self._budget = budget or Budget()
        self._started = self._looked = time.monotonic()
        self._before = [usage(each) for each in self._pids]
        self._waited = 0.0
        self._ran: float | None = None

    def spent(self) -> str | None:
        """Looks at the clocks, at most every ``LOOK`` seconds."""
        if time.monotonic() - self._looked < LOOK:
            return None
        self._looked = time.monotonic()
        pairs = zip([usage(pid) for pid in self._pids], self._before, strict=True)
        spans = [
            Usage(now.ran - then.ran, now.waited - then.waited) if now and then else None
            for now, then in pairs
        ]
        self._waited = max(self._waited, sum(span.waited for span in spans if span is not None))
        self._ran = spans[0].ran if spans[0] is not None else self._ran
        if (self._ran or 0.0) >= self._seconds:
            return f"more than {self._seconds:g} s of processor time"
        if self._awake >= self._wall:
            return f"not done after {self._wall:g} s"
        over = self._budget.used + self._awake >= self._budget.seconds
        return TOGETHER if over else None

    @property
    def _awake(self) -> float:
        """Seconds on the wall clock, without those spent waiting for a processor."""
        return self._looked - self._started - self._waited

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.used += max(self._awake, 0.0)
