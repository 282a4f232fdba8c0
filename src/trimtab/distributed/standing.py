"""Where the run's own process stands: its threads, and the tasks that wait without one.

Looked at from another thread, the watchdog's, while the process does whatever it does.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from trimtab.distributed.workers import frames_of, stacks_text, suspended, waiting_text

PACKAGE = Path(__file__).parents[1]
LOOP = str(PACKAGE / "loop")
DRIVERS = ("synchronous", "asynchronous", "ahead")
"""Modules of the loop whose functions lead through a step; a stage is what they call."""
UNKNOWN = "driver"


@dataclass(frozen=True, slots=True)
class Standing:
    """Of this process, at one moment.

    stage: the innermost function of the loop under way, as "collect" or "update" (several, where tasks run
        beside each other), "driver" outside of any.
    text: stacks of threads and of waiting tasks, the newest call last.
    """

    stage: str
    text: str

    @classmethod
    def now(cls) -> Standing:
        threads = _threads()
        tasks = _tasks(threads)
        chains = [*threads, *(_chain(task) for task in tasks)]
        stages = {stage for chain in chains if (stage := _stage(chain))}
        waiting = [f"task {task.get_name()} waits:\n{waiting_text(task.get_coro())}" for task in tasks]
        return cls(", ".join(sorted(stages)) or UNKNOWN, "\n".join([*waiting, stacks_text()]))


def digest() -> int:
    """A number that changes when the main thread, a thread of this package, or a task goes on to another
    line, and when a task comes or goes.
    """
    main = threading.main_thread().ident
    threads = _threads()
    tasks = _tasks(threads)
    shown = [chain for chain in threads if chain.ident == main or any(map(_is_ours, chain))]
    places = [
        (chain.name, *((id(f.f_code), f.f_lasti) for f in chain))
        for chain in (*shown, *(_chain(task) for task in tasks))
    ]
    return hash(tuple(places))


def is_idle() -> bool:
    """Whether the main thread waits in its event loop for whatever comes next."""
    frame = _main_frame()
    return frame is not None and frame.f_code.co_filename == selectors.__file__


def main_place() -> int:
    """A number that changes when the main thread goes on to another line; 0 where ``is_idle``."""
    if is_idle():
        return 0
    return hash(tuple((id(frame.f_code), frame.f_lasti) for frame in frames_of(_main_frame()))) or 1


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


class Chain(list[FrameType]):
    """Frames of a thread or task, the newest first. ident: the thread's, 0 for a task."""

    def __init__(self, frames: Iterable[FrameType], name: str, ident: int = 0) -> None:
        super().__init__(frames)
        self.name, self.ident = name, ident


def _threads() -> list[Chain]:
    """All threads but the asking one."""
    mine = threading.get_ident()
    return [
        Chain(frames_of(frame), str(ident), ident)
        for ident, frame in sys._current_frames().items()
        if ident != mine
    ]


def _tasks(threads: Sequence[Chain]) -> list[asyncio.Task[Any]]:
    """The tasks of every event loop that one of the threads runs."""
    loops = [
        owner
        for frame in (frame for chain in threads for frame in chain)
        if frame.f_code.co_name == "run_forever"
        and isinstance(owner := frame.f_locals.get("self"), asyncio.AbstractEventLoop)
    ]
    found = [task for loop in loops for task in asyncio.all_tasks(loop)]
    return sorted(found, key=lambda task: task.get_name())


def _chain(task: asyncio.Task[Any]) -> Chain:
    return Chain(reversed(list(suspended(task.get_coro()))), task.get_name())


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(str(PACKAGE))


def _stage(chain: Chain) -> str:
    """The innermost stage in a chain of calls, "" where it holds none."""
    for code in (frame.f_code for frame in chain):
        inside = code.co_filename.startswith(LOOP) and Path(code.co_filename).stem not in DRIVERS
        if inside and code.co_name[0] not in "_<":
            return code.co_name
    return ""
