"""One Chromium for all tests of the pages, one fresh page a test, one server over the recorded runs.

The browser is the system's own (``chromium`` on the PATH); nothing is downloaded. A page's test fails if the
page complains of anything at all: console, exception, dialog, answer >= 400, request to another machine.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.runs import runs_folder
from tests.browser.serving import Watched, served

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}
PATIENCE = 10_000
"""Milliseconds that a page is waited for."""

expect.set_options(timeout=PATIENCE)
Opens = Callable[..., Watched]


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The one browser. Its event loop runs in this thread, so it ends with this folder's last test: until
    then ``asyncio.run`` is refused to everybody.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recorded run, two more seeds of it, and one of another algorithm."""
    return runs_folder(tmp_path_factory.mktemp("dashboard") / "runs")


@pytest.fixture(scope="session")
def site(runs: Path) -> Iterator[str]:
    """The address of the server over ``runs``."""
    with served(runs) as address:
        yield address


@pytest.fixture
def opens(chromium: Browser) -> Iterator[Opens]:
    """Opens pages of a server, or of a file; all of them are checked for complaints in the end."""
    opened: list[Watched] = []

    def open_page(base: str, *, viewport: dict[str, int] = WIDE, scheme: str = "light") -> Watched:
        context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        opened.append(Watched(context.new_page(), base))
        return opened[-1]

    yield open_page
    try:
        for watched in opened:
            watched.check()
    finally:
        for watched in opened:
            watched.page.context.close()


@pytest.fixture
def watched(opens: Opens, site: str) -> Watched:
    """A page of the server over ``runs``, 1280 pixels wide and light."""
    return opens(site)
