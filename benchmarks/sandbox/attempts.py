"""Programs that try to leave the sandbox, each with what must have happened to call it contained.

Used by ``escapes.py`` (the table in docs/sandbox.md) and by the tests. A program prints ``refused`` where an
escape raised an error, and ``ESCAPED`` where it did not; some are judged by how they end instead.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimtab.rewards.sandbox import Ended, Limits, Place, run_program
from trimtab.rewards.sandbox.interpreter import ENVIRONMENT

MIB = 1 << 20
LIMITS = Limits(
    seconds=2.0, memory_bytes=256 * MIB, output_bytes=MIB, folder_bytes=32 * MIB, file_bytes=8 * MIB
)


@dataclass
class Scene:
    """What lies outside, within reach of a program that gets out: all of it open to every user."""

    folder: Path
    victim: subprocess.Popen[bytes]
    servers: dict[str, socket.socket]
    names: dict[str, object] = field(default_factory=dict)

    @property
    def untouched(self) -> bool:
        """Nobody connected, sent, wrote, or hurt the victim."""
        heard = [name for name, server in self.servers.items() if _heard(server)]
        files = {path.name for path in self.folder.iterdir()}
        canary = self.folder / "canary"
        same = canary.read_text() == "canary" and canary.stat().st_mode & 0o777 == 0o666
        return not heard and files == {"canary", "socket"} and same and self.victim.poll() is None


@contextmanager
def scene() -> Iterator[Scene]:
    """A folder with a canary, servers for TCP, UDP and datagrams by path, a process, a secret variable."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-escapes-")))
        folder.chmod(0o777)
        (folder / "canary").write_text("canary")
        (folder / "canary").chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        victim = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"], cwd="/")
        stack.callback(victim.wait)
        stack.callback(victim.send_signal, signal.SIGKILL)
        os.environ["TRIMTAB_SECRET"] = "hunter2"
        stack.callback(os.environ.pop, "TRIMTAB_SECRET")
        names: dict[str, object] = {
            "OUTSIDE": str(folder),
            "HOME": str(Path.home()),
            "SHELLS": {".pyenv", ".local", ""},  # folders that an interpreter may lie in
            "WORDS": {*ENVIRONMENT, "PWD", "LC_CTYPE"},
            "TCP": tcp.getsockname()[1],
            "UDP": udp.getsockname()[1],
            "VICTIM": victim.pid,
            "TRAINER": os.getpid(),
        }
        yield Scene(folder, victim, {"TCP": tcp, "UDP": udp, "unix": unix}, names)


def _heard(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        server.recv(1) if server.type == socket.SOCK_DGRAM else server.accept()
    except OSError:
        return False
    return True


Judge = Callable[[Ended], bool]


def all_refused(ended: Ended) -> bool:
    """The program ran to its end, and every escape in it raised an error."""
    lines = ended.output.split()
    return ended.clean and b"refused" in lines and b"ESCAPED" not in lines


def cut(ended: Ended) -> bool:
    """The program was ended from outside."""
    return ended.cut is not None


def failed(ended: Ended) -> bool:
    """The program ended by itself, but not well."""
    return ended.cut is None and not ended.clean


def at_most(count: int) -> Judge:
    """The program counted how often something succeeded, and it was at most this often."""

    def judge(ended: Ended) -> bool:
        words = ended.output.split()
        return ended.clean and len(words) == 1 and int(words[0]) <= count

    return judge


def stopped(ended: Ended) -> bool:
    """Cut, or ended by an error of its own: either way it did not get what it wanted."""
    return cut(ended) or failed(ended)


@dataclass(frozen=True)
class Escape:
    """One attempt: a program, and how it must end. The scene must be untouched in any case.

    harmless: nothing but the scene suffers when it succeeds, so that it can be tried without a sandbox too.
    """

    name: str
    program: str
    judge: Judge = all_refused
    limits: Limits = LIMITS
    harmless: bool = False

    def contained(self, place: Place) -> tuple[bool, str]:
        """Whether it was contained, and what the program saw."""
        with scene() as outside:
            head = "".join(f"{name} = {value!r}\n" for name, value in outside.names.items())
            ended = run_program(
                replace(place, limits=self.limits), head + PRELUDE + textwrap.dedent(self.program)
            )
            return self.judge(ended) and outside.untouched, told(ended)


def told(ended: Ended) -> str:
    """One line of what the program printed, or how it ended."""
    lines = ended.output[:100_000].decode(errors="replace").splitlines()
    shown = next((line for line in lines if line.startswith("ESCAPED")), lines[0] if lines else "")
    return ended.cut or (shown if ended.clean else str(ended)) or "ended without a word"


PRELUDE = """
import os, sys
def nothing():
    raise LookupError("nothing found")
def tried(escape):
    try:
        told = escape()
    except BaseException as fault:
        print("refused", f"{type(fault).__name__}: {fault}"[:100], flush=True)
    else:
        print("ESCAPED with", type(told).__name__, flush=True)
def syscall(**numbers):
    [(x86_64, aarch64)] = numbers.values()
    return [x86_64 if os.uname().machine == "x86_64" else aarch64]
def call(number, *words):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    returned = libc.syscall(number, *words)
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned
"""
"""What every escape finds defined: never prints what it found, only that it found something."""
