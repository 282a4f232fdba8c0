"""Processes of an engine end with the process that started the engine, however that one ends.

vLLM ends its inner processes when it is asked to. A client that is killed asks nobody, and they would live on
and keep their memory.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

CLIENT = "TRIMTAB_ENGINE_CLIENT"
"""The variable that tells inner processes who started the engine."""
LOOK = 1.0


def end_with_client() -> None:
    """In an inner process: watch the client that the environment names, and end with it.

    The parent goes first where it is another process than the client, since it would wait for this one.
    """
    told = os.environ.get(CLIENT, "")
    if told.isdigit() and int(told) != os.getpid():
        threading.Thread(target=_watch, args=(int(told), os.getppid()), name="orphans", daemon=True).start()


def _watch(client: int, parent: int) -> None:
    while _lives(client) and os.getppid() == parent:
        time.sleep(LOOK)
    if parent != client and os.getppid() == parent:
        os.kill(parent, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _lives(pid: int) -> bool:
    """Whether there is such a process, and not only the entry that its own parent has not read yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1]
    except OSError:
        return False
    return fields.split()[0] not in ("Z", "X")
