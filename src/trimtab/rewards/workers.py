"""A pool of processes that can be killed: for graders whose input comes from a model.

    result = await pool.run("trimtab.rewards.mathematics.symbolic:check", payload, timeout=2.0)

Each call has its own limit, counted from the moment a process begins with it, never while it waits or loads.
A process that exceeds it is killed, with its children, and replaced; the other processes go on meanwhile.
Processes are spawned, not forked (threads of the trainer cannot deadlock them), at the first call; requests
and results are JSON over pipes, nothing is pickled. The pool belongs to no event loop: it may be used from
any thread and any loop, also by several at once.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import itertools
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

PROCESS = Path(__file__).with_name("worker_process.py")
LOAD_TIMEOUT = 60.0
"""Seconds for starting a process and importing a function's file; not counted to any call."""
MEMORY = 2 << 30
STDERR_KEPT = 1 << 20
CALLS_A_PROCESS = 20_000
"""Then a process is replaced, so that slow leaks of a grader cannot grow."""


class WorkerTimeoutError(TimeoutError):
    """The call took longer than its limit, and its process was killed."""


class WorkerCrashedError(RuntimeError):
    """The process ended in the middle of a call."""


class WorkerFaultError(RuntimeError):
    """The function raised; ``kind`` is the name of the exception, the message its traceback."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class WorkerPool:
    """``size`` processes at most, each with at most ``memory`` bytes (None for no limit)."""

    def __init__(self, size: int = 2, *, memory: int | None = MEMORY) -> None:
        self.size = size
        self.memory = memory
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        self._pid = os.getpid()
        self._unfinished = 0
        atexit.register(self.close)

    async def run(self, function: str, payload: Any, timeout: float) -> Any:
        """``function(payload)`` in a process.

        function: ``trimtab.some.module:name``, or ``path/to/file.py:name``; it may be a coroutine function.
        payload, result: what JSON can hold. timeout: seconds.
        Raises WorkerTimeoutError, WorkerCrashedError, WorkerFaultError.
        """
        return await asyncio.wrap_future(self.submit(function, payload, timeout))

    def call(self, function: str, payload: Any, timeout: float) -> Any:
        """The same, waiting in the calling thread."""
        return self.submit(function, payload, timeout).result()

    def submit(self, function: str, payload: Any, timeout: float) -> Future[Any]:
        """The same, as a future; cancelling it before it has begun takes it out of the queue."""
        call = _Call(*_located(function), payload=json.dumps(payload), timeout=timeout)
        with self._lock:
            if self._pid != os.getpid():  # in a forked child: the threads and pipes are the parent's
                self._waiting, self._processes = queue.SimpleQueue(), []
                self._pid, self._unfinished = os.getpid(), 0
            self._unfinished += 1
            if len(self._processes) < min(self.size, self._unfinished):
                process = _Process(self.memory)
                self._processes.append(process)
                threading.Thread(target=self._serve, args=(process, self._waiting), daemon=True).start()
        call.future.add_done_callback(self._finished)
        self._waiting.put(call)
        return call.future

    def close(self) -> None:
        """Kills all processes: calls that run crash, waiting ones are cancelled, later ones start anew."""
        with self._lock:
            processes, self._processes = self._processes, []
            waiting, self._waiting = self._waiting, queue.SimpleQueue()
        with contextlib.suppress(queue.Empty):
            while (call := waiting.get_nowait()) is not None:
                call.future.cancel()
        for process in processes:
            waiting.put(None)
            process.kill()

    def _finished(self, _: Future[Any]) -> None:
        with self._lock:
            self._unfinished -= 1

    def _serve(self, process: _Process, waiting: queue.SimpleQueue[_Call | None]) -> None:
        """The life of one keeper thread: takes calls, one at a time, to its process."""
        while (call := waiting.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.future.set_result(process.do(call))
            except BaseException as fault:
                call.future.set_exception(fault)
        process.kill()


class _Call:
    def __init__(self, file: str, function: str, *, payload: str, timeout: float) -> None:
        self.file = file
        self.function = function
        self.payload = payload
        self.timeout = timeout
        self.future: Future[Any] = Future()

    def request(self, number: int, with_payload: bool) -> bytes:
        head = json.dumps({"id": number, "file": self.file, "function": self.function})
        return (f'{head[:-1]}, "payload": {self.payload}}}\n' if with_payload else f"{head}\n").encode()


class _Process:
    """One process and its pipes; started when needed, and again after it was killed."""

    def __init__(self, memory: int | None) -> None:
        self.memory = memory
        self.numbers = itertools.count(1)
        self.running: subprocess.Popen[bytes] | None = None
        self.stderr: Any = None
        self.loaded: set[tuple[str, str]] = set()
        self.calls = 0
        self.buffer = b""

    def do(self, call: _Call) -> Any:
        if self.running is None or self.running.poll() is not None or self.calls >= CALLS_A_PROCESS:
            self._start()
        key = (call.file, call.function)
        if key not in self.loaded:
            self._exchange(call, LOAD_TIMEOUT, with_payload=False)
            self.loaded.add(key)
        self.calls += 1
        if (
            self.stderr.seek(0, os.SEEK_END) > STDERR_KEPT
        ):  # the offset is shared: the process starts again at 0
            self.stderr.seek(0)
            self.stderr.truncate()
        return self._exchange(call, call.timeout, with_payload=True)["result"]

    def _start(self) -> None:
        self.kill()
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  (kill closes it)
        self.running = subprocess.Popen(
            [sys.executable, "-P", str(PROCESS), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
            bufsize=0,
        )
        assert self.running.stdin is not None
        os.set_blocking(self.running.stdin.fileno(), False)
        self.loaded.clear()
        self.calls, self.buffer = 0, b""
        settings = {"memory": self.memory, "path": [entry or os.getcwd() for entry in sys.path]}
        self._send_and_receive(json.dumps(settings).encode() + b"\n", time.monotonic() + LOAD_TIMEOUT, False)

    def _exchange(self, call: _Call, timeout: float, *, with_payload: bool) -> dict[str, Any]:
        number = next(self.numbers)
        line = self._send_and_receive(call.request(number, with_payload), time.monotonic() + timeout, True)
        if line is None:
            self.kill()
            what = f"{call.function} gave no result" if with_payload else f"{call.file} could not be loaded"
            raise WorkerTimeoutError(f"{what} within {timeout:g} s")
        if not line:
            raise WorkerCrashedError(f"the process of {call.function} ended: {self._last_words()}")
        reply = json.loads(line)
        assert reply["id"] == number
        if "error" in reply:
            if reply["kind"] == "MemoryError":
                self.kill()
            raise WorkerFaultError(f"{call.function} raised:\n{reply['error']}", reply["kind"])
        return reply

    def _send_and_receive(self, request: bytes, deadline: float, wanted: bool) -> bytes | None:
        """One line of reply; None when the deadline passed, empty when the process ended."""
        process = self.running
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        rest = memoryview(request)
        with selectors.DefaultSelector() as pipes:
            pipes.register(process.stdin, selectors.EVENT_WRITE)
            pipes.register(process.stdout, selectors.EVENT_READ)
            while rest or wanted:
                if (remaining := deadline - time.monotonic()) <= 0:
                    return None
                for key, _ in pipes.select(remaining):
                    if key.fileobj is process.stdin:
                        try:
                            rest = rest[os.write(process.stdin.fileno(), rest) :]
                        except OSError:
                            return b""
                        if not rest:
                            pipes.unregister(process.stdin)
                    else:
                        piece = os.read(process.stdout.fileno(), 1 << 16)
                        self.buffer += piece
                        line, found, after = self.buffer.partition(b"\n")
                        if found:
                            self.buffer = after
                            return line
                        if not piece:
                            return b""
        return b""

    def _last_words(self) -> str:
        """How the process ended, with the end of what it wrote to standard error."""
        process = self.running
        if process is None:
            return "it was closed"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - 2000))
        said = self.stderr.read().decode(errors="replace").strip()
        self.kill()
        return f"exit code {process.returncode}{': ' if said else ''}{said}"

    def kill(self) -> None:
        """Ends the process and every child it has started."""
        process, self.running = self.running, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


def _located(function: str) -> tuple[str, str]:
    """(file, name) of ``module:name`` inside trimtab or ``file.py:name``. Raises ValueError."""
    place, _, name = function.rpartition(":")
    if place.endswith(".py"):
        return str(Path(place).resolve()), name
    if place.partition(".")[0] != "trimtab":
        raise ValueError(f"a worker runs trimtab.module:name or file.py:name, got {function!r}")
    return _file_of(place), name


@lru_cache
def _file_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    return spec.origin


@lru_cache
def shared_pool() -> WorkerPool:
    """The one pool of this process."""
    return WorkerPool()
