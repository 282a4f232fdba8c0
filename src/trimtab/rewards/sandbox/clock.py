"""Processor time of a running process: what makes a program slow, whatever else the machine does."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float | None:
    """Of this process and its living descendants, all threads; None where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = (int(fields[11]) + int(fields[12])) / _TICKS
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += processor_seconds(int(child)) or 0.0
    except (OSError, IndexError, ValueError):
        return None
    return total


class Allowance:
    """Time for one piece of work of a process, from now on.

    ``spent`` is the reason why it has used up its time, None while it has not. Processor time decides;
    the wall clock (``wall`` seconds) ends a program that waits for ever.
    """

    def __init__(self, pid: int, seconds: float, wall: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._wall = wall
        self._started = time.monotonic()
        self._before = processor_seconds(pid)

    def spent(self) -> str | None:
        passed = time.monotonic() - self._started
        if passed < self._seconds:
            return None
        if passed >= self._wall:
            return f"not done after {self._wall:g} s"
        now = processor_seconds(self._pid)
        if now is None or self._before is None:
            return f"not done after {passed:.3g} s"
        used = now - self._before
        return f"more than {self._seconds:g} s of processor time" if used >= self._seconds else None
