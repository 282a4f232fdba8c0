"""A chat-completions endpoint on this machine, for tests of the judge: real sockets, scripted behaviour."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What the server sends: a status, a body, further headers, after a delay in seconds."""

    status: int
    body: str
    headers: Mapping[str, str] = MappingProxyType({})
    delay: float = 0.0


class Request(NamedTuple):
    body: dict[str, Any]
    headers: dict[str, str]
    at: float

    @property
    def system(self) -> str:
        return self.body["messages"][0]["content"]

    @property
    def user(self) -> str:
        return self.body["messages"][1]["content"]

    @property
    def nonce(self) -> str:
        found = re.search(r'"nonce": "(\w+)"', self.system)
        assert found is not None
        return found[1]

    def fenced(self, name: str) -> str:
        """The text of a fence, found as a judge finds it: by the mark that the system message names."""
        mark = re.search(r"(\w+)-question", self.system)
        assert mark is not None
        inside = self.user.split(f"<<<{mark[1]}-{name}\n")[1].split(f"\n{mark[1]}-{name}>>>")
        assert len(inside) == 2
        return inside[0]


def completion(content: str | None, finish: str = "stop", **kwargs: Any) -> Reply:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return Reply(200, json.dumps({"choices": [choice]}), **kwargs)


def verdict(request: Request, **fields: Any) -> Reply:
    return completion(json.dumps({"nonce": request.nonce, "reason": "so it is", **fields}))


class JudgeServer:
    """``answer(request, number)`` makes each reply; numbers count from 0. Use as a context."""

    def __init__(self, answer: Callable[[Request, int], Reply]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.busy = self.busiest = 0
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self) -> JudgeServer:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                request = Request(body, {k.lower(): v for k, v in self.headers.items()}, time.monotonic())
                with owner.lock:
                    number = len(owner.requests)
                    owner.requests.append(request)
                    owner.busy += 1
                    owner.busiest = max(owner.busiest, owner.busy)
                try:
                    assert self.path == "/v1/chat/completions"
                    reply = owner.answer(request, number)
                    time.sleep(reply.delay)
                finally:
                    with owner.lock:
                        owner.busy -= 1
                data = reply.body.encode()
                with suppress(OSError):  # the client has given up
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(data)), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
