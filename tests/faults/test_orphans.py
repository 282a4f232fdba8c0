"""Inner processes of an engine do not outlive who started it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from trimtab.distributed.orphans import CLIENT, _lives

INNER = (
    "from trimtab.distributed.orphans import end_with_client; import time; "
    "end_with_client(); print(1, flush=True); time.sleep(600)"
)
CORE = (
    "import subprocess, sys; "
    f"p = subprocess.Popen([sys.executable, '-c', {INNER!r}], stdout=subprocess.PIPE, text=True); "
    "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
)
STARTER = (
    "import os, subprocess, sys; "
    f"os.environ['{CLIENT}'] = str(os.getpid()); "
    f"p = subprocess.Popen([sys.executable, '-c', {CORE!r}], stdout=subprocess.PIPE, text=True); "
    "print(p.pid, p.stdout.readline().strip(), flush=True); p.wait()"
)


def test_a_killed_client_takes_its_engine_along():
    client = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    core, inner = map(int, client.stdout.readline().split())
    assert _lives(core)
    assert _lives(inner)
    os.kill(client.pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while (_lives(core) or _lives(inner)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _lives(core)
    assert not _lives(inner)
    client.wait()
