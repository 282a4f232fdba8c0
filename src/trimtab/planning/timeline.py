"""Simulated time: processes that wait for work and for each other, on cores of their own or shared ones."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

NOTHING_LEFT = 1e-12


@dataclass(slots=True, eq=False)
class Work:
    """Seconds that somebody would take alone. ``began`` and ``ended`` are simulated times."""

    who: str
    seconds: float
    began: float = 0.0
    ended: float | None = None

    @property
    def took(self) -> float:
        assert self.ended is not None
        return self.ended - self.began


Wait = Sequence[Work] | Callable[[], bool]
Process = Generator[Wait, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """Cores that all works share. count 0: each work has its own, and nothing slows anything.

    With D = threads * works wanted, a work's speed is

        min(1, count / D) / (1 + (slowdown - 1) * b),   b = (min(D, count) - threads) / (count - threads)

    the share of the other cores that is busy; b = 0 where a work takes all cores itself.
    """

    count: int = 0
    threads: int = 1
    slowdown: float = 1.0

    def speed(self, works: int) -> float:
        """Seconds of work done in a second by each of so many works at once."""
        if not self.count or not works:
            return 1.0
        wanted, others = self.threads * works, self.count - self.threads
        busy = (min(wanted, self.count) - self.threads) / others if others > 0 else 0.0
        return min(1.0, self.count / wanted) / (1.0 + (self.slowdown - 1.0) * max(0.0, busy))


class Timeline:
    """Runs processes. A process yields works to have done, or what it waits for."""

    def __init__(self, cores: Cores) -> None:
        self.cores = cores
        self.now = 0.0
        self.working: list[Work] = []

    def run(self, main: Process, others: Sequence[Process] = ()) -> None:
        """Until ``main`` has ended. Raises RuntimeError where all wait for each other."""
        waits: dict[Process, Wait] = {process: [] for process in (main, *others)}
        while main in waits:
            if not self._resume(waits):
                if not self.working:
                    raise RuntimeError("every process of the simulation waits for another")
                self._advance()

    def delay(self, who: str, seconds: float) -> None:
        """Make works of ``who`` that run just now take longer."""
        for work in self.working:
            if work.who == who:
                work.seconds += seconds

    def _resume(self, waits: dict[Process, Wait]) -> bool:
        """Let every process go on that can; False when none could."""
        went_on = False
        for process, wait in list(waits.items()):
            if not (wait() if callable(wait) else all(work.ended is not None for work in wait)):
                continue
            went_on = True
            try:
                waits[process] = self._start(next(process))
            except StopIteration:
                del waits[process]
        return went_on

    def _start(self, wait: Wait) -> Wait:
        if not callable(wait):
            for work in wait:
                work.began = self.now
                if work.seconds <= NOTHING_LEFT:
                    work.ended = self.now
                else:
                    self.working.append(work)
        return wait

    def _advance(self) -> None:
        """To the end of the next work."""
        speed = self.cores.speed(len(self.working))
        step = min(work.seconds for work in self.working)
        self.now += step / speed
        for work in self.working:
            work.seconds -= step
            if work.seconds <= NOTHING_LEFT * max(1.0, self.now):
                work.ended = self.now
        self.working = [work for work in self.working if work.ended is None]
