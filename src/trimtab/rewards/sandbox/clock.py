"""Time as a process had it: what it used of a processor, and how long it waited for one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

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


class Allowance:
    """Time for one piece of work of a process, from now on.

    ``spent`` is the reason why it has used up its time, None while it has not. Processor time decides.
    ``wall`` seconds end a program that sleeps for ever; what it waited for a processor does not count, so
    that a busy machine makes no program wrong.
    """

    def __init__(self, pid: int, seconds: float, wall: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._wall = wall
        self._started = time.monotonic()
        self._before = usage(pid)

    def spent(self) -> str | None:
        passed = time.monotonic() - self._started
        if passed < self._seconds:
            return None
        now = usage(self._pid)
        if now is None or self._before is None:
            return f"not done after {passed:.3g} s" if passed >= self._wall else None
        if now.ran - self._before.ran >= self._seconds:
            return f"more than {self._seconds:g} s of processor time"
        if passed - (now.waited - self._before.waited) >= self._wall:
            return f"not done after {self._wall:g} s"
        return None
