"""Who writes a run directory: a lock that the system itself releases when its holder dies."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple, Self

from trimtab.errors import RunError

PATIENCE = 1.0
"""Seconds to wait for a reader that happens to look at the lock."""


class Holder(NamedTuple):
    """Process and machine that last took the lock."""

    process: int
    machine: str


class RunLock:
    """Held by the one process that writes a run, for as long as it lives."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def take(cls, path: Path) -> Self:
        """Raises RunError while another process holds it."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    os.close(file)
                    holder = read_holder(path)
                    who = f"process {holder.process} on {holder.machine}" if holder else "another process"
                    raise RunError(
                        f"{path.parent} is being written by {who}; "
                        "stop it first, or give this run another name"
                    ) from None
                time.sleep(0.05)
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(Holder(os.getpid(), socket.gethostname())).encode(), 0)
        return cls(file)

    def release(self) -> None:
        os.close(self._file)


def read_holder(path: Path) -> Holder | None:
    """Who took the lock last; None where nobody did or the file cannot be read."""
    try:
        process, machine = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Holder(int(process), str(machine))


def is_held(path: Path) -> bool:
    """Whether a living process of this machine holds the lock."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
