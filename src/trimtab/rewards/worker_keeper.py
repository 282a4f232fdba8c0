"""The thread that keeps one process of a pool busy, watches its time and clears up after it.

A synchronous function runs one call after another; further calls are sent ahead only as far as the process
finishes them within ``AHEAD_SECONDS``, so a slow one has nobody waiting behind it. Calls of a coroutine
function run together, up to ``Call.together``. All calls in flight are of one function.

Time: a synchronous call has its limit from the moment the process begins with it. A coroutine is cancelled
in the process at its limit; where the process says nothing for ``GRACE`` longer, some coroutine blocks it.
A process that is late or ends is replaced. Of synchronous calls the first one in flight was to blame. Of
coroutines any may have been: each is asked again alone, and the one that is late or ends it then, was it.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from trimtab.rewards.worker_link import WorkerLink

LOAD_TIMEOUT = 60.0
"""Seconds for starting a process and importing a function's file; not counted to any call."""
CALLS_A_PROCESS = 20_000
"""Then a process is replaced, so that slow leaks of a grader cannot grow."""
AHEAD_SECONDS = 0.02
MOST_AHEAD = 8
GRACE = 1.0


class WorkerTimeoutError(TimeoutError):
    """The call took longer than its limit of ``seconds``. ``killed``: its process was, too."""

    def __init__(self, message: str, seconds: float, *, killed: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.killed = killed


class WorkerCrashedError(RuntimeError):
    """The process ended in the middle of a call."""


class WorkerFaultError(RuntimeError):
    """The function raised. The message is its traceback.

    kind: the name of the exception; kinds: the names of its class and all its bases, bare and with their
    module; said: the traceback's last line.
    """

    def __init__(self, message: str, kind: str, kinds: tuple[str, ...] = (), said: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.kinds = kinds
        self.said = said or kind

    @classmethod
    def of(cls, function: str, told: dict[str, Any]) -> WorkerFaultError:
        """From what the process told of the fault."""
        message = f"{function} raised:\n{told['error']}"
        return cls(message, told["kind"], tuple(told["kinds"]), told["said"])


@dataclass(slots=True, eq=False)
class Call:
    """One call and its future. ``payload`` is JSON text; None only loads the function.

    through: a file whose ``adapt(module, name, options)`` makes the function that is called, or None.
    together: how many calls of this function one process may run at once; more than 1 for coroutines.
    """

    file: str
    function: str
    payload: str | None
    timeout: float
    through: str | None = None
    options: str = ""
    together: int = 1
    future: Future[Any] = field(default_factory=Future)
    begun: bool = False
    alone: bool = False

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        return (self.file, self.function, self.through, self.options)

    def request(self, number: int, *, with_payload: bool) -> bytes:
        head: dict[str, Any] = {"id": number, "function": self.key}
        if not with_payload:
            return json.dumps(head).encode() + b"\n"
        if self.together > 1:
            head["limit"] = self.timeout
        return f'{json.dumps(head)[:-1]}, "payload": {self.payload}}}\n'.encode()


@dataclass(slots=True, eq=False)
class CallQueue:
    """Calls that wait for a process, the keepers that take them, and the lock they share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[Call] = field(default_factory=deque[Call])
    keepers: list[Keeper] = field(default_factory=list)
    closed: bool = False


class Keeper:
    """Takes calls from ``queue`` to its process until the queue is closed. ``start`` begins its thread.

    ``room``: it would take another call of the same function now; ``idle``: it has none in flight. Both are
    set under the queue's lock.
    """

    def __init__(self, queue: CallQueue, memory: int | None, address_space: int | None) -> None:
        self.queue = queue
        self.room = self.idle = True
        self.link = WorkerLink(memory, address_space)
        self._flying: dict[int, Call] = {}
        self._number = 0
        self._heard = 0.0
        self._pace: dict[Any, float] = {}
        self.thread = threading.Thread(target=self._live, daemon=True, name="trimtab-worker")

    def _live(self) -> None:
        while True:
            taken = self._take()
            if self.queue.closed:
                break
            try:
                for call in taken:
                    self._send(call)
                if self._flying or not taken:  # never to sleep while the pool takes it to be busy
                    self._turn()
            except Exception as fault:  # whatever it is, the calls must not wait for ever
                self._fail([*self._flying.values(), *taken], fault)
                self.link.kill()
        self._fail([*self._flying.values(), *taken], WorkerCrashedError("the pool was closed"))
        self.link.close()

    def _take(self) -> list[Call]:
        """Calls that this process may begin with now."""
        taken: list[Call] = []
        with self.queue.lock:
            waiting = self.queue.waiting
            while waiting and self._fits(waiting[0], taken):
                call = waiting.popleft()
                if call.begun or call.future.set_running_or_notify_cancel():
                    call.begun = True
                    taken.append(call)
            others = [*self._flying.values(), *taken]
            self.idle = not others
            self.room = not waiting and (self.idle or len(others) < self._most(others[0]))
        return taken

    def _fits(self, call: Call, taken: list[Call]) -> bool:
        others = [*self._flying.values(), *taken] if taken else list(self._flying.values())
        if not others:
            return True
        first = others[0]
        if call.alone or first.alone or call.key != first.key or call.payload is None:
            return False
        if self.link.calls + len(taken) >= CALLS_A_PROCESS:
            return False
        return len(others) < self._most(first)

    def _most(self, call: Call) -> int:
        """How many calls like this one may be in flight."""
        if call.alone:
            return 1
        if call.together > 1:
            return call.together
        pace = self._pace.get(call.key, AHEAD_SECONDS)
        return max(1, min(MOST_AHEAD, int(AHEAD_SECONDS / max(pace, 1e-6))))

    def _send(self, call: Call) -> None:
        if not self._flying and (not self.link.alive or self.link.calls >= CALLS_A_PROCESS):
            self.link.start()
        if call.payload is not None and call.key not in self.link.loaded and not self._load(call):
            return
        if not self._flying:
            self.link.trim()
            self._heard = time.monotonic()
        self._number += 1
        self._flying[self._number] = call
        self.link.calls += 1
        self.link.post(call.request(self._number, with_payload=call.payload is not None))

    def _load(self, call: Call) -> bool:
        """Let the process import the call's file, within a time of its own; else the call fails."""
        self._number += 1
        request = json.loads(call.request(self._number, with_payload=False))
        line = self.link.exchange(request, LOAD_TIMEOUT)
        if line is None:
            self.link.kill()
            told = f"{call.file} could not be loaded within {LOAD_TIMEOUT:g} s"
            call.future.set_exception(WorkerTimeoutError(told, LOAD_TIMEOUT))
        elif not line:
            call.future.set_exception(self._crash(call))
        elif "error" in (reply := json.loads(line)):
            call.future.set_exception(WorkerFaultError.of(call.function, reply))
        else:
            self.link.loaded.add(call.key)
            return True
        return False

    def _turn(self) -> None:
        """Wait until something happens, and deal with it."""
        wait = None
        if self._flying:
            wait = max(0.0, self._heard + self._limit() - time.monotonic())
        lines, ended = self.link.turn(wait)
        for line in lines:
            self._settle(json.loads(line))
        if ended:
            self._ended()
        elif wait == 0.0 and not lines:
            self._late()

    def _limit(self) -> float:
        calls = self._flying.values()
        first = next(iter(calls))
        return first.timeout if first.together == 1 else max(call.timeout for call in calls) + GRACE

    def _settle(self, reply: dict[str, Any]) -> None:
        call = self._flying.pop(reply["id"], None)
        if call is None:
            return
        now = time.monotonic()
        took, self._heard = now - self._heard, now
        self._pace[call.key] = 0.8 * self._pace.get(call.key, took) + 0.2 * took
        if reply.get("late"):
            call.future.set_exception(WorkerTimeoutError(_told_late(call), call.timeout))
        elif "error" in reply:
            call.future.set_exception(WorkerFaultError.of(call.function, reply))
            if reply["kind"] == "MemoryError":  # what filled the memory may still be there
                self.link.kill()
                self._put_back(list(self._flying.values()))
        else:
            call.future.set_result(reply["about"] if call.payload is None else reply["result"])

    def _late(self) -> None:
        self.link.kill()
        self._blame(lambda call: WorkerTimeoutError(_told_late(call), call.timeout, killed=True))

    def _ended(self) -> None:
        if not self._flying:
            self.link.kill()
            return
        words = self.link.last_words()
        closed = self.queue.closed
        told = "the pool was closed" if closed else "the process of {function} ended: {words}"
        self._blame(lambda call: WorkerCrashedError(told.format(function=call.function, words=words)))

    def _blame(self, fault: Any) -> None:
        """Fail the call that killed its process; the others are asked again."""
        calls = list(self._flying.values())
        if calls[0].together == 1 or len(calls) == 1:
            self._flying.clear()
            calls[0].future.set_exception(fault(calls[0]))
            self._pace.pop(calls[0].key, None)
            self._put_back(calls[1:])
            return
        for call in calls:
            call.alone = True
        self._put_back(calls)

    def _put_back(self, calls: list[Call]) -> None:
        self._flying.clear()
        with self.queue.lock:
            self.queue.waiting.extendleft(reversed(calls))
            others = [keeper for keeper in self.queue.keepers if keeper.idle]
        for keeper in others:
            keeper.link.wake()

    def _crash(self, call: Call) -> WorkerCrashedError:
        return WorkerCrashedError(f"the process of {call.function} ended: {self.link.last_words()}")

    def _fail(self, calls: list[Call], fault: Exception) -> None:
        self._flying.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(fault)


def _told_late(call: Call) -> str:
    return f"{call.function} gave no result within {call.timeout:g} s"
