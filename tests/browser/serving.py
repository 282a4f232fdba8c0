"""The dashboard's server in a thread, and a browser page that remembers whatever went wrong on it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from playwright.sync_api import ConsoleMessage, Page, Request

from trimtab.dashboard.server import application
from trimtab.dashboard.store import RunStore


@contextmanager
def served(root: Path, pairs: Path | None = None) -> Iterator[str]:
    """The address of a server over ``root``, on a free port of the loopback interface."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(application(RunStore(root), pairs), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(5)


READY = "before => Number(document.body?.dataset.ready ?? 0) > Number(before)"


def until(page: Page, condition: str, argument: object = None, seconds: float = 10.0) -> None:
    """Wait for a condition in the page. The driver's own waiting evaluates text, which the policy forbids."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"never came true: {condition}"
        page.wait_for_timeout(25)


class Watched:
    """A page with all its complaints: console errors and warnings, exceptions, dialogs, failed and foreign
    requests. ``check`` fails on any; the fixture calls it after every test.
    """

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._ready = 0
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on(
            "dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )
        page.on("request", self._request)
        page.on(
            "response",
            lambda answer: answer.status >= 400 and self.complaints.append(f"{answer.status}: {answer.url}"),
        )

    def visit(self, route: str) -> Page:
        """Go to a page by its address within the dashboard and wait until it is drawn."""
        target = f"{self.base}/#/{route}" if self.base.startswith("http") else f"{self.base}#/{route}"
        fresh = not self.page.url.startswith(self.base)
        before = "0" if fresh else (self.page.get_attribute("body", "data-ready") or "0")
        if not fresh and self.page.url == target:
            self.page.reload()
            before = "0"
        else:
            self.page.goto(target)
        until(self.page, READY, before)
        return self.page

    def check(self) -> None:
        own = urlsplit(self.base)
        foreign = [url for url in self.requests if not self._is_own(url, own.netloc)]
        assert not foreign, f"requests that leave this machine: {foreign}"
        assert not self.complaints, self.complaints

    def allow(self, part: str) -> None:
        """Forget complaints that contain ``part``: a test has caused them on purpose. There must be one."""
        assert any(part in text for text in self.complaints), f"nothing complained of {part!r}"
        self.complaints = [text for text in self.complaints if part not in text]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    @staticmethod
    def _is_own(url: str, netloc: str) -> bool:
        there = urlsplit(url)
        return there.scheme in ("data", "blob", "about") or (
            there.scheme in ("http", "file") and there.netloc == netloc
        )
