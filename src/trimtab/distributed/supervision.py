"""A watchdog in the driver: whatever makes no progress is named, with where it stands.

    progress   a worker gave something, its count of work rose, or a thread of it went on to another line
    patience   seconds without any: worker, stage and stacks are told, again each time that it has doubled;
               a process that came up and does not even answer for so long is ended, as if it had died
    give_up    seconds without any: the worker is ended and the run with it

The driver itself is watched in the same way, unless it waits in its event loop for workers that have
something to do; its stage is the function of the loop that it stands in. While its main thread stands still
anywhere else it takes in nothing, workers that are done seem busy, and their seconds do not count.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trimtab.config.cluster import ClusterConfig
from trimtab.distributed.notices import Notices
from trimtab.distributed.standing import Standing, digest, is_idle, main_place
from trimtab.distributed.workers import Pulse, Worker, process_state
from trimtab.errors import RunError
from trimtab.record.events import Event

LONGEST_STACKS = 6000
ANSWER = 5.0


@dataclass(slots=True, eq=False)
class Watched:
    """What the watchdog remembers of a worker. told: seconds at which it last spoke of it."""

    actor: Any = None
    asked: Any = None
    asked_at: float = 0.0
    pulse: Pulse | None = None
    told: float = 0.0


@dataclass(slots=True, eq=False)
class Driver:
    """The same of this process."""

    moves: int = 0
    place: int = 0
    since: float = field(default_factory=time.monotonic)
    told: float = 0.0


class Watchdog:
    """Looks at the workers from a thread of its own; ``verdict`` is why it interrupted the run, or None.

    workers: asked at every look, since workers come and go.
    """

    def __init__(
        self, workers: Callable[[], Sequence[Worker]], config: ClusterConfig, notices: Notices
    ) -> None:
        self.workers, self.config, self.notices = workers, config, notices
        self.verdict: RunError | None = None
        self.every = min(5.0, config.patience / 4)
        self._known: dict[Worker, Watched] = {}
        self._driver = Driver()
        self._place, self._looked = 0, time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(self.every + 5.0)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._end.wait(self.every):
            asleep = time.monotonic() - before - self.every
            if asleep > self.every:  # this process stood still, and the workers perhaps with it
                self._forgive(asleep)
            with contextlib.suppress(
                RayError
            ):  # a session that ends takes its workers along; the run says so
                self.look()
            before = time.monotonic()

    def _forgive(self, seconds: float) -> None:
        """A machine that was suspended has not hung."""
        self._driver.since += seconds
        self._spare(seconds)

    def _spare(self, seconds: float) -> None:
        """These seconds are not the workers'."""
        now = time.monotonic()
        for worker in self.workers():
            worker.since = min(now, worker.since + seconds)
        for seen in self._known.values():
            seen.asked_at = min(now, seen.asked_at + seconds)

    def look(self) -> None:
        """One round over all workers with something to do, while the driver can take in what they give."""
        busy = [worker for worker in self.workers() if worker.doing]
        before, self._looked = self._looked, time.monotonic()
        place, self._place = self._place, main_place()
        if self._place and self._place == place:
            self._spare(self._looked - before)
        else:
            for worker in busy:
                self._look_at(worker, self._known.setdefault(worker, Watched()))
        self._look_at_driver(busy)

    def _look_at(self, worker: Worker, seen: Watched) -> None:
        now = time.monotonic()
        if seen.actor is not worker.actor:
            seen.actor, seen.asked, seen.pulse, seen.told = worker.actor, None, None, 0.0
        answers = self._answers(worker, seen)
        still = now - worker.since
        if still < self.config.patience:
            seen.told = 0.0
            return
        if self.config.give_up and still >= self.config.give_up:
            self._condemn(worker, still, hopeless=True)
        elif worker.about is not None and not answers and now - seen.asked_at >= self.config.patience:
            self._condemn(worker, still, hopeless=False)
        elif still >= 2 * seen.told:
            seen.told = still
            self._tell(worker, still, self._where(worker))

    def _answers(self, worker: Worker, seen: Watched) -> bool:
        """Whether the worker answers; a pulse that differs from the one before counts as progress."""
        if seen.asked is None:
            seen.asked, seen.asked_at = worker.actor.pulse.remote(), time.monotonic()
        began, limit = time.monotonic(), min(1.0, self.every)
        ready, _ = ray.wait([seen.asked], timeout=limit)
        late = time.monotonic() - began - limit
        if late > self.every:
            self._forgive(late)
        if not ready:
            return False
        try:
            pulse: Pulse = ray.get(seen.asked)
        except RayError:  # it is gone; whoever waits for its answer learns that
            seen.asked = None
            return True
        seen.asked = None
        if seen.pulse is not None and pulse != seen.pulse:
            worker.since = time.monotonic()
        seen.pulse = pulse
        return True

    def _where(self, worker: Worker) -> str:
        """Its stacks, or what the system says of a process that does not answer."""
        with contextlib.suppress(RayError, GetTimeoutError):
            return str(ray.get(worker.actor.stacks.remote(), timeout=ANSWER))[-LONGEST_STACKS:]
        if worker.about is None:
            return "it has not come up yet: the cluster may lack room, or its node is starting"
        return f"it does not answer; {state_on_node(worker)}"

    def _tell(self, worker: Worker, still: float, where: str) -> None:
        self.notices.tell(
            Event.NO_PROGRESS,
            f"no progress for {still:.0f} s at stage {worker.doing}: {worker}\n{where}",
            worker=str(worker),
            stage=worker.doing,
            seconds=round(still, 1),
            stacks=where,
        )

    def _condemn(self, worker: Worker, still: float, *, hopeless: bool) -> None:
        where = self._where(worker)
        self._tell(worker, still, where)
        limit = "cluster.give_up" if hopeless else "cluster.patience"
        worker.hopeless = hopeless
        worker.condemned = (
            f"{worker} made no progress for {still:.0f} s at stage {worker.doing} and was ended ({limit}); "
            f"{where}"
        )
        ray.kill(worker.actor)

    def _look_at_driver(self, busy: Sequence[Worker]) -> None:
        now, seen = time.monotonic(), self._driver
        moves, place = sum(worker.moves for worker in self.workers()), digest()
        waits = bool(busy) and is_idle()
        if self.verdict is None and (waits or (moves, place) != (seen.moves, seen.place)):
            self._driver = Driver(moves, place)
            return
        still = now - seen.since
        hopeless = bool(self.config.give_up) and still >= self.config.give_up
        if self.verdict is None and still >= max(self.config.patience, 2 * seen.told, hopeless):
            seen.told = still
            self._tell_driver(still, hopeless=hopeless)
        if self.verdict is not None:
            self._interrupt()

    def _tell_driver(self, still: float, *, hopeless: bool) -> None:
        standing = Standing.now()
        where = standing.text[-LONGEST_STACKS:]
        sentence = (
            f"no progress for {still:.0f} s at stage {standing.stage} in the run's own process {os.getpid()}"
        )
        self.notices.tell(
            Event.NO_PROGRESS,
            f"{sentence}\n{where}",
            worker="driver",
            stage=standing.stage,
            seconds=round(still, 1),
            stacks=where,
        )
        if hopeless:
            self.verdict = RunError(f"{sentence} (cluster.give_up); resume the run\n{where}")

    def _interrupt(self) -> None:
        """As from the keyboard, which also ends a wait in the kernel. asyncio cancels its task at the first
        one and raises at the second, so it comes again at each look until the run has ended.
        """
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def state_on_node(worker: Worker) -> str:
    """What the system of the worker's own node says of its process."""
    assert worker.about is not None
    place = NodeAffinitySchedulingStrategy(worker.about.node, soft=False)
    task: Any = ray.remote(process_state)
    call = task.options(num_cpus=0, scheduling_strategy=place).remote(worker.about.pid)
    try:
        return str(ray.get(call, timeout=10.0))
    except (RayError, GetTimeoutError):
        return f"its node {worker.about.address} does not answer either"
