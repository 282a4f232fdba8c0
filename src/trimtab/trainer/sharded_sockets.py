"""Connections that a library opens and does not let go: found by looking before and after, broken by hand.

Gloo keeps its connections for as long as anything refers to the group, and sharded parameters always do. So a
rank that has failed could not tell the others, who would wait for it until their time-out.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")


def open_sockets() -> dict[int, int]:
    """File descriptors of this process's sockets, each with what tells it from a later one of its number."""
    found: dict[int, int] = {}
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError, ValueError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[int(name)] = status.st_ino
    return found


def break_sockets(sockets: Mapping[int, int]) -> None:
    """End the connections of these descriptors at once; the descriptors stay with whoever owns them."""
    for descriptor, number in sockets.items():
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == number:
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.getpeername()  # raises for one that listens, which gloo must not find shut
                    connection.shutdown(socket.SHUT_RDWR)
