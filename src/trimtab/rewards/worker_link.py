"""One process of a pool (workers.py) and its pipes: started when needed, and again after it was killed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROCESS = Path(__file__).with_name("worker_process.py")
START_TIMEOUT = 60.0
STDERR_KEPT = 1 << 20
LAST_WORDS = 2000


class WorkerLink:
    """The parent's end of one process; used by one thread, but for ``strike`` and ``wake``.

    memory: bytes of its own data; address_space: bytes of everything mapped, libraries too. None: no limit.
    """

    def __init__(self, memory: int | None, address_space: int | None) -> None:
        self.limits = {"memory": memory, "address_space": address_space}
        self.loaded: set[Any] = set()
        self.calls = 0
        self._running: subprocess.Popen[bytes] | None = None
        self._stderr: Any = None
        self._unread = b""
        self._unwritten = bytearray()
        self._bell, self._button = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._button, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def start(self) -> None:
        """A fresh process, which has loaded nothing."""
        self.kill()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (kill closes it)
        self._running = subprocess.Popen(
            [sys.executable, "-P", str(PROCESS), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
            bufsize=0,
        )
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        os.set_blocking(self._running.stdin.fileno(), False)
        self._selector.register(self._running.stdout, selectors.EVENT_READ)
        self.post({**self.limits, "path": [entry or os.getcwd() for entry in sys.path]})

    def post(self, request: dict[str, Any] | bytes) -> None:
        """Send a request; what the pipe does not take at once is sent by the next ``turn``."""
        line = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        self._unwritten += line
        self._write()

    def turn(self, timeout: float | None) -> tuple[list[bytes], bool]:
        """Wait for something to happen: the whole lines that came, and whether the process has ended.

        Returns early, with no line, when ``wake`` is called.
        """
        lines: list[bytes] = []
        ended = False
        for key, _ in self._selector.select(timeout):
            if key.fileobj == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 1 << 12)
            elif self._running is not None and key.fileobj is self._running.stdin:
                self._write()
            elif self._running is not None and key.fileobj is self._running.stdout:
                piece = os.read(key.fd, 1 << 16)
                ended = not piece
                *lines, self._unread = (self._unread + piece).split(b"\n")
        return lines, ended

    def exchange(self, request: dict[str, Any], timeout: float) -> bytes | None:
        """Send and wait for the one reply; None when it did not come in time, empty when the process ended.

        Only while nothing else is asked of the process.
        """
        deadline = time.monotonic() + timeout
        self.post(request)
        while True:
            remaining = deadline - time.monotonic()
            lines, ended = self.turn(max(0.0, remaining))
            if lines:
                return lines[0]
            if ended:
                return b""
            if remaining <= 0:
                return None

    def wake(self) -> None:
        """Let ``turn`` return; from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._button, b"!")

    def strike(self) -> None:
        """Kill the process and every child it has started, from any thread; ``turn`` then says it ended."""
        running = self._running
        if running is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process, with its children, and forget all that was under way."""
        self.strike()
        running, self._running = self._running, None
        self._unread = b""
        self._unwritten.clear()
        self.loaded.clear()
        self.calls = 0
        if running is None:
            return
        running.wait()
        for pipe in (running.stdin, running.stdout):
            assert pipe is not None
            with contextlib.suppress(KeyError):
                self._selector.unregister(pipe)
            pipe.close()
        self._stderr.close()

    def close(self) -> None:
        """``kill``, for good."""
        self.kill()
        self._selector.close()
        os.close(self._bell)
        os.close(self._button)

    def last_words(self) -> str:
        """How the process ended, with the end of what it wrote to standard error; then it is cleared away."""
        running = self._running
        if running is None:
            return "it was closed"
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(timeout=5)
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - LAST_WORDS))
        said = self._stderr.read().decode(errors="replace").strip()
        code = running.returncode
        self.kill()
        return f"exit code {code}{': ' if said else ''}{said}"

    def trim(self) -> None:
        """Drop what it wrote to standard error where that has become much."""
        if self._stderr.seek(0, os.SEEK_END) > STDERR_KEPT:
            self._stderr.seek(0)  # the offset is shared: the process goes on writing at 0
            self._stderr.truncate()

    def _write(self) -> None:
        running = self._running
        if running is None or running.stdin is None:
            return
        try:
            while self._unwritten:
                del self._unwritten[: os.write(running.stdin.fileno(), self._unwritten)]
        except BlockingIOError:
            with contextlib.suppress(KeyError):
                self._selector.register(running.stdin, selectors.EVENT_WRITE)
            return
        except OSError:  # it has ended: its standard output says so
            self._unwritten.clear()
        with contextlib.suppress(KeyError):
            self._selector.unregister(running.stdin)
