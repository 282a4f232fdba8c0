"""One sandboxed process as the trainer sees it: start it, read what it says within bounds, end it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Self

from trimtab.rewards.sandbox.command import command
from trimtab.rewards.sandbox.duty import Duty, packed, readable_file
from trimtab.rewards.sandbox.filters import seccomp_filter
from trimtab.rewards.sandbox.interpreter import ENVIRONMENT, USERS
from trimtab.rewards.sandbox.limits import MIB
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.report import SandboxError, Tier

STARTUP_SECONDS = 30.0
"""A sandbox that is not ready after this long is a fault; on an idle machine it takes 0.03 s."""

_CHUNK = 1 << 16
_TAIL = 4096


class Stream:
    """What came through a pipe. Beyond ``limit`` bytes it closes and is ``overflown``.

    With ``tail`` only the last bytes are kept, and there is no limit.
    """

    def __init__(self, fd: int, limit: int, *, tail: bool = False) -> None:
        os.set_blocking(fd, False)
        self.fd: int | None = fd
        self.text = bytearray()
        self.overflown = False
        self._limit = limit
        self._tail = tail

    def read(self) -> None:
        """Takes one chunk of what is there; closes at the end of the stream."""
        if self.fd is None:
            return
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return
        self.text += chunk
        if len(self.text) > self._limit:
            if self._tail:
                del self.text[: -self._limit]
            else:
                del self.text[self._limit :]
                self.overflown = True
        if not chunk or self.overflown:
            self.close()

    def drain(self) -> None:
        """Takes all that is there, once nobody can write any more."""
        before = -1
        while self.fd is not None and before != len(self.text):
            before = len(self.text)
            self.read()

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Child:
    """A started process. Use it as a context: leaving it kills whatever is left of it.

    ``status``: what our own code inside says, first of all ``ready``. ``output``: what the program prints,
    None when nobody listens. ``errors``: the last of what it prints to stderr.
    Raises SandboxError when it cannot be started.
    """

    def __init__(
        self,
        duty: Duty,
        place: Place,
        *,
        stdin: bytes = b"",
        listen: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.place = place
        self._stack = ExitStack()
        try:
            uid = None if place.tier is Tier.UNSAFE else self._stack.enter_context(USERS.lend())
            self._start(duty, uid, stdin, listen, pass_fds)
        except BaseException as fault:
            self._stack.close()
            if isinstance(fault, OSError):
                raise SandboxError(f"a sandboxed process could not be started: {fault}") from fault
            raise

    def _start(
        self, duty: Duty, uid: int | None, stdin: bytes, listen: bool, pass_fds: Sequence[int]
    ) -> None:
        with ExitStack() as theirs:  # what the child inherits is closed here
            self.status, status = self._pipe(theirs, 4 * MIB)
            self.errors, errors = self._pipe(theirs, _TAIL, tail=True)
            self.output, output = (
                self._pipe(theirs, self.place.limits.output_bytes)
                if listen
                else (None, _held(theirs, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)))
            )
            given = _held(theirs, readable_file(stdin))
            work = _held(theirs, readable_file(packed(duty, self.place, uid=uid, status=status)))
            passed = [work, status, *pass_fds]
            seccomp = None
            if self.place.tier is Tier.BUBBLEWRAP:
                seccomp = _held(theirs, readable_file(seccomp_filter(namespaces=True)))
                passed.append(seccomp)
            self.process = subprocess.Popen(
                command(self.place, duty=work, uid=uid, seccomp=seccomp),
                stdin=given,
                stdout=output,
                stderr=errors,
                pass_fds=passed,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        self._exit_fd: int | None = None
        if hasattr(os, "pidfd_open"):
            self._exit_fd = _held(self._stack, os.pidfd_open(self.process.pid))

    def _pipe(self, theirs: ExitStack, limit: int, *, tail: bool = False) -> tuple[Stream, int]:
        read_end, write_end = os.pipe()
        stream = Stream(read_end, limit, tail=tail)
        self._stack.callback(stream.close)
        return stream, _held(theirs, write_end)

    @property
    def ready(self) -> bool:
        return self.status.text.startswith(b"ready\n")

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """As a shell says it: 128 + n for a process that signal n ended."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def await_ready(self) -> None:
        """Returns when all rights are given up. Raises SandboxError when that fails."""
        deadline = time.monotonic() + STARTUP_SECONDS
        while not self.ready:
            over = self.ended
            pump([self], 0.05)
            if self.ready:
                return
            if over or time.monotonic() > deadline:
                self.kill()
                told = b" ".join((self.status.text + self.errors.text).split()).decode(errors="replace")
                why = told or (f"exit code {self.exit_code}" if over else "no answer in time")
                raise SandboxError(f"the sandbox {self.place.tier} did not come up: {why}")

    def kill(self) -> None:
        """Ends the process and its group, and waits for it. With bubblewrap its whole namespace ends."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stack.close()

    def _sources(self) -> dict[int, Stream | None]:
        streams = [stream for stream in (self.status, self.output, self.errors) if stream is not None]
        sources: dict[int, Stream | None] = {stream.fd: stream for stream in streams if stream.fd is not None}
        if self._exit_fd is not None and self.process.returncode is None:
            sources[self._exit_fd] = None
        return sources


def pump(children: Sequence[Child], seconds: float) -> None:
    """Waits at most this long for anything to happen to these children, and reads what they said."""
    poll = select.poll()
    sources = {fd: stream for child in children for fd, stream in child._sources().items()}
    for fd in sources:
        poll.register(fd, select.POLLIN)
    for fd, _ in poll.poll(max(seconds, 0.0) * 1000):
        stream = sources[fd]
        if stream is not None:
            stream.read()


def _held(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd
