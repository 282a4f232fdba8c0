"""The Python that runs sandboxed programs, what it must be able to read, and under which user."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("-s", "-S", "-P", "-B")
"""No site packages, no path of the trainer, no byte code files. Not -I: the hash seed is set below."""

ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",  # the order of a set, and with it the grade, is the same in every run
    "PYTHONUTF8": "1",
}
"""All that a sandboxed program finds in its environment."""

_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """executable: the real file, outside any virtual environment. readable: folders and files it needs.

    packages: those of the readable folders that programs may import from, besides the standard library.
    """

    executable: str
    readable: tuple[str, ...]
    packages: tuple[str, ...] = ()

    @property
    def closed_places(self) -> bool:
        """Whether only their owner may read one of these places, as happens with a strict umask."""
        return not all(_open_to_others(Path(place)) for place in self.readable)

    @property
    def closed_above(self) -> bool:
        """Whether only its owner may enter a folder above one of these places, as is usual for /root."""
        return not all(_open_to_others(above) for place in self.readable for above in Path(place).parents)


def this_interpreter(packages: tuple[str, ...] = ()) -> Interpreter:
    """The base interpreter of this process, with its standard library, and folders of ``packages``."""
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    libraries = [str(Path(prefix) / name) for prefix in sorted(prefixes) for name in ("lib", "lib64")]
    folders = tuple(str(Path(place).resolve()) for place in packages)
    places = dict.fromkeys([*_SYSTEM, executable, *libraries, *folders])
    return Interpreter(executable, tuple(place for place in places if Path(place).exists()), folders)


def _open_to_others(place: Path) -> bool:
    status = place.stat()
    wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    return status.st_mode & wanted == wanted


class Users:
    """Lends user ids that nobody else on this machine has, when the trainer is root; else None.

    A program under its own user id can neither signal nor read other processes, and its threads can be
    counted. Ids are above the ranges that distributions and containers hand out, where the machine maps
    them, else between those of people and ``nobody``.
    """

    _HIGH, _LOW, _COUNT = 1_900_000_000, 61_184, 4_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: set[int] = set()

    @contextmanager
    def lend(self) -> Iterator[int | None]:
        if os.geteuid() != 0:
            yield None
            return
        first = self._HIGH if _maps(self._HIGH) else self._LOW
        start = os.getpid() * 64  # two trainers on one machine begin at different places
        with self._lock:
            turn = ((start + k) % self._COUNT for k in range(self._COUNT))
            uid = next(first + k for k in turn if first + k not in self._lent)
            self._lent.add(uid)
        try:
            yield uid
        finally:
            with self._lock:
                self._lent.discard(uid)


def _maps(uid: int) -> bool:
    """Whether this user namespace knows the id."""
    try:
        ranges = [map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    return any(inside <= uid < inside + count for inside, _, count in ranges)


USERS = Users()
