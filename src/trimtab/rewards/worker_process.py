"""The process behind workers.py: reads one JSON request a line, answers with one JSON line.

Run as a script, with the standard library only. What a function prints goes to standard error, so that it
cannot disturb the answers.

    {"memory": bytes or null, "path": [...]}                      once, at the start
    {"id": 1, "file": "/x/y.py", "function": "f"}               load; answer {"id": 1, "loaded": true}
    {"id": 2, "file": ..., "function": "f", "payload": ...}     call; answer {"id": 2, "result": ...}
    any failure                         answer {"id": 2, "error": "Traceback ...", "kind": "ValueError"}
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves requests until the pipe closes."""
    die_with_parent(int(sys.argv[1]))
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    settings = json.loads(requests.readline())
    sys.path += [entry for entry in settings["path"] if entry not in sys.path]
    if settings["memory"] is not None:
        limit_memory(settings["memory"])
    loaded: dict[tuple[str, str], Callable[[Any], Any]] = {}
    for line in requests:
        reply = json.dumps(answer(json.loads(line), loaded)).encode() + b"\n"
        while reply:
            reply = reply[replies.write(reply) :]


def answer(request: dict[str, Any], loaded: dict[tuple[str, str], Callable[[Any], Any]]) -> dict[str, Any]:
    """The reply to one request; whatever the function raises becomes part of it."""
    key = (request["file"], request["function"])
    try:
        if key not in loaded:
            loaded[key] = load(*key)
        if "payload" not in request:
            return {"id": request["id"], "loaded": True}
        result = loaded[key](request["payload"])
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        json.dumps(result)
        return {"id": request["id"], "result": result}
    except BaseException as fault:  # exit() and KeyboardInterrupt of the function are faults of it too
        trace = traceback.format_exc(limit=-20)
        return {"id": request["id"], "error": trace[-20_000:], "kind": type(fault).__name__}


def load(file: str, function: str) -> Callable[[Any], Any]:
    """The function of this name in this file; packages around the file are not imported."""
    spec = importlib.util.spec_from_file_location(f"worker_{os.path.basename(file)[:-3]}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def limit_memory(memory: int) -> None:
    """At most this many bytes of address space; where the system cannot limit it, there is no limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def die_with_parent(parent: int) -> None:
    """On Linux, be killed when the parent is, even in the middle of an endless computation."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    main()
