"""The process behind workers.py: reads one JSON request a line, answers with one JSON line.

Run as a script, with the standard library only. What a function prints goes to standard error, so that it
cannot disturb the answers.

    {"memory": bytes or null, "address_space": ..., "path": [...]}            once, at the start
    {"id": 1, "function": ["/x/y.py", "f", through, options]}      load; answer {"id": 1, "about": ...}
    {"id": 2, "function": ..., "payload": ...}                     call; answer {"id": 2, "result": ...}
    the same with "limit": seconds      a coroutine, together with others; answer also {"id": 2, "late": true}
    any failure    answer {"id": 2, "error": "Traceback ...", "kind": "KeyError", "kinds": [...], "said": ...}

``through`` is null, or a file whose ``adapt(module, name, options)`` gives the function to call and what to
answer about it. An exception that is part of a result becomes {"fault": {"error": ..., "kind": ...}} there.
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
from types import ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
Loaded = tuple[Callable[[Any], Any], Any]


def main() -> None:
    """Serves requests until the pipe closes."""
    die_with_parent(int(sys.argv[1]))
    requests, replies = Lines(os.dup(0)), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    settings = json.loads(requests.next() or b"{}")
    sys.path += [entry for entry in settings["path"] if entry not in sys.path]
    limit_memory(settings["memory"], settings["address_space"])
    server = Server(requests, replies)
    while (line := requests.next()) is not None:
        server.serve(json.loads(line))


class Lines:
    """Whole lines from a pipe. It reads no more than is there, so an event loop can watch the pipe too."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.whole: list[bytes] = []
        self.rest = b""
        self.ended = False

    def next(self) -> bytes | None:
        """The next line, waiting for it; None at the end."""
        while not self.whole and not self.ended:
            self.read()
        return self.whole.pop(0) if self.whole else None

    def read(self) -> None:
        """What is there now, waiting while there is nothing."""
        piece = os.read(self.pipe, 1 << 16)
        self.ended = not piece
        *whole, self.rest = (self.rest + piece).split(b"\n")
        self.whole += whole


class Server:
    """The functions that were loaded, and the one event loop in which their coroutines run."""

    def __init__(self, requests: Lines, replies: int) -> None:
        self.requests = requests
        self.replies = replies
        self.loaded: dict[tuple[str, str, str | None, str], Loaded] = {}
        self.loop = asyncio.new_event_loop()

    def serve(self, request: dict[str, Any]) -> None:
        """Answers the request, and further ones that come meanwhile where it is a coroutine's."""
        if "limit" in request:
            self.loop.run_until_complete(self._serve_together(request))
            return
        self._reply(request, lambda: self._done(request))

    def _done(self, request: dict[str, Any]) -> dict[str, Any]:
        function, about = self._function(request)
        if "payload" not in request:
            return {"about": about}
        result = function(request["payload"])
        if inspect.isawaitable(result):
            result = self.loop.run_until_complete(_awaited(result))
        return {"result": as_json(result)}

    async def _serve_together(self, first: dict[str, Any]) -> None:
        tasks: set[asyncio.Task[None]] = set()
        news = asyncio.Event()

        def begin(request: dict[str, Any]) -> None:
            task = self.loop.create_task(self._within_limit(request))
            tasks.add(task)
            task.add_done_callback(end)

        def end(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            news.set()

        def read() -> None:
            self.requests.read()
            if self.requests.ended:
                os._exit(0)
            news.set()

        begin(first)
        self.loop.add_reader(self.requests.pipe, read)
        try:
            while tasks:
                while self.requests.whole:
                    begin(json.loads(self.requests.whole.pop(0)))
                await news.wait()
                news.clear()
        finally:
            self.loop.remove_reader(self.requests.pipe)

    async def _within_limit(self, request: dict[str, Any]) -> None:
        """One coroutine; where it is late it is cancelled, and not waited for if it goes on all the same."""
        running = self.loop.create_task(self._outcome(request))
        done, _ = await asyncio.wait({running}, timeout=request["limit"])
        if done:
            self._reply(request, running.result)
        else:
            running.cancel()
            self._reply(request, lambda: {"late": True})

    async def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            result = self._function(request)[0](request["payload"])
            if inspect.isawaitable(result):
                result = await result
            return {"result": as_json(result)}
        except BaseException as fault:  # exit() of the coroutine must not end the loop
            return told(fault)

    def _reply(self, request: dict[str, Any], outcome: Callable[[], dict[str, Any]]) -> None:
        try:
            said = outcome()
        except BaseException as fault:  # exit() and KeyboardInterrupt of the function are faults of it too
            said = told(fault)
        fields = ", ".join(f'"{key}": {_text(value)}' for key, value in said.items())
        line = f'{{"id": {request["id"]}, {fields}}}\n'.encode()
        while line:
            line = line[os.write(self.replies, line) :]

    def _function(self, request: dict[str, Any]) -> Loaded:
        key = tuple(request["function"])
        if key not in self.loaded:
            self.loaded[key] = load(*key)
        return self.loaded[key]


def load(file: str, function: str, through: str | None, options: str) -> Loaded:
    """The function of this name in this file, and what the adapter ``through`` says about it."""
    module = imported(file)
    if through is None:
        return getattr(module, function), None
    return imported(through).adapt(module, function, options)


def imported(file: str) -> ModuleType:
    """The file as a module; packages around it are not imported."""
    name = f"worker_{os.path.basename(file)[:-3]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up
    spec.loader.exec_module(module)
    return module


def told(fault: BaseException) -> dict[str, Any]:
    """The fault as part of a reply."""
    kinds = [name for kind in type(fault).__mro__ for name in (kind.__name__, _full(kind))]
    return {
        "error": "".join(traceback.format_exception(fault, limit=-20))[-20_000:],
        "kind": type(fault).__name__,
        "kinds": kinds,
        "said": traceback.format_exception_only(fault)[-1].strip()[:2000],
    }


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Encoded(str):
    """A value that is JSON text already."""


def as_json(value: Any) -> Encoded:
    """JSON text of a result, with the exceptions in it. Raises TypeError for what JSON cannot hold."""
    return Encoded(json.dumps(value, default=_exception))


def _exception(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"fault": told(value)}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _text(value: Any) -> str:
    return value if isinstance(value, Encoded) else json.dumps(value)


async def _awaited(result: Any) -> Any:
    return await result


def limit_memory(memory: int | None, address_space: int | None) -> None:
    """Limits in bytes; where the system cannot limit memory, there is no limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        if memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def die_with_parent(parent: int) -> None:
    """On Linux, be killed when the parent is, even in the middle of an endless computation."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    main()
