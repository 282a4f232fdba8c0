"""What every worker process of a run answers at any time, and how the driver speaks of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import ray

WATCH = "watch"
"""The group of methods with a thread of its own: they answer while the worker computes."""


class Whereabouts(NamedTuple):
    """Which process a worker is."""

    pid: int
    address: str
    node: str
    host: str


class Built(NamedTuple):
    """An engine that has come up: where, how many ranks of a meeting it takes, and its weights' dtype."""

    about: Whereabouts
    ranks: int
    dtype: str


class Pulse(NamedTuple):
    """Two equal ones mean that nothing has moved between them: no count, and no line of any thread."""

    ticks: int
    stacks: int


class Observed:
    """What a worker says of itself. Base of the actors."""

    def about(self) -> Whereabouts:
        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        return Whereabouts(os.getpid(), address, context.get_node_id(), socket.gethostname())

    def ticks(self) -> int:
        """A count that rises with the work done."""
        return 0

    def waiting(self) -> list[object]:
        """Coroutines and asynchronous generators under way: while they wait they stand in no thread."""
        return []

    @ray.method(concurrency_group=WATCH)
    def pulse(self) -> Pulse:
        return Pulse(self.ticks(), stacks_digest())

    @ray.method(concurrency_group=WATCH)
    def stacks(self) -> str:
        """Where each thread stands, and what waits without one; the newest call last, as Python shows it."""
        return "\n".join([stacks_text(), *(f"waiting:\n{waiting_text(one)}" for one in self.waiting())])


@dataclass(slots=True, eq=False)
class Worker:
    """A worker as the driver sees it.

    ranks: of a meeting that it takes. doing: the stage it works at, "" while nothing is asked of it. since:
    when it last moved (monotonic). starts: processes that came up in its place so far. moves: what has come
    of it. condemned: why the watchdog ended it, "" while it did not; hopeless: it shall not be started again.
    """

    name: str
    actor: Any = None
    about: Whereabouts | None = None
    ranks: int = 1
    doing: str = ""
    since: float = 0.0
    condemned: str = ""
    hopeless: bool = False
    starts: int = 0
    moves: int = 0

    def begin(self, stage: str) -> None:
        self.doing, self.since = stage, time.monotonic()

    def moved(self) -> None:
        """Something came of it."""
        self.moves += 1
        self.since = time.monotonic()

    def rest(self) -> None:
        self.doing = ""

    def __str__(self) -> str:
        if self.about is None:
            return self.name
        return f"{self.name} (process {self.about.pid} on {self.about.address})"


def stacks_digest() -> int:
    """A number that changes when any thread but the asking one goes on to another line."""
    mine = threading.get_ident()
    places = [
        (ident, *((id(f.f_code), f.f_lasti) for f in frames_of(frame)))
        for ident, frame in sys._current_frames().items()
        if ident != mine
    ]
    return hash(tuple(places))


def stacks_text() -> str:
    """Where each thread but the asking one stands, the newest call last."""
    mine, names = threading.get_ident(), {t.ident: t.name for t in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident != mine:
            lines = "".join(traceback.format_stack(frame)).rstrip()
            parts.append(f"thread {names.get(ident, ident)}:\n{lines}")
    return "\n".join(parts)


def waiting_text(waiting: object) -> str:
    """Where a coroutine or asynchronous generator waits, and what it waits for, as deep as Python tells."""
    return "".join(line for f in suspended(waiting) for line in traceback.format_stack(f, limit=1)).rstrip()


def suspended(waiting: object) -> Iterator[FrameType]:
    """The frames of a coroutine or asynchronous generator and of what it waits for, the newest last."""
    while waiting is not None:
        kind = next((kind for kind in ("ag", "cr", "gi") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:  # the step of an asynchronous generator does not say whose it is
            waiting = next((one for one in gc.get_referents(waiting) if hasattr(one, "ag_frame")), None)
            continue
        frame = getattr(waiting, f"{kind}_frame")
        if frame is None:
            return
        yield frame
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def frames_of(frame: FrameType | None) -> list[FrameType]:
    """A frame and those that called it, the newest first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def process_state(pid: int) -> str:
    """What the system says of a process of this machine: its state and where it waits in the kernel."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except FileNotFoundError:
        return f"there is no process {pid} any more"
    except OSError as error:
        return f"its state cannot be read ({error})"
    memory = f", {lines['VmRSS'].strip()} of memory" if "VmRSS" in lines else ""
    return f"the system calls process {pid} {lines.get('State', 'unknown')}{memory}"


def start(kind: type[Observed], options: dict[str, Any], *arguments: Any) -> Any:
    """A new actor of this kind. Never restarted by Ray itself: what it held would be gone unnoticed."""
    remote: Any = ray.remote
    return remote(concurrency_groups={WATCH: 1}, max_restarts=0, **options)(kind).remote(*arguments)
