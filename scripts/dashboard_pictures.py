"""The pictures of docs/dashboard.md, taken of real runs with the system's Chromium.

    python scripts/dashboard_pictures.py RUNS --run quickstart --sick NAME --compare a,b,c [--to docs/images]

RUNS is a folder of runs; --sick names one in which the doctor finds something. Prints each picture's size.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlencode

import uvicorn
from playwright.sync_api import Browser, ViewportSize, sync_playwright

from trimtab.dashboard.server import application
from trimtab.dashboard.store import RunStore

WIDE, NARROW, LOW = (ViewportSize(width=x, height=y) for x, y in ((1280, 900), (390, 844), (1280, 740)))


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a server over ``root``."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(RunStore(root)), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True


def routes(args: argparse.Namespace) -> Iterator[tuple[str, str, ViewportSize, Literal["light", "dark"]]]:
    """Name of the picture, page, size of the window, theme."""
    run, sick = quote(args.run, safe=""), quote(args.sick, safe="")
    compared = urlencode([("run", name) for name in args.compare.split(",")])
    yield "runs", "runs", WIDE, "light"
    for page in ("overview", "curves", "distributions", "rollouts", "prompts", "config"):
        yield page, f"run/{run}/{page}", WIDE, "light"
    yield "tokens", f"run/{sick}/tokens?{args.rollout}by=ratios", LOW, "light"
    yield "tokens-as-sapo", f"run/{sick}/tokens?{args.rollout}by=gates&as=sapo", LOW, "light"
    yield "doctor", f"run/{sick}/doctor", WIDE, "light"
    yield "events", f"run/{run}/events", LOW, "light"
    yield "compare", f"compare?{compared}", WIDE, "light"
    yield "overview-dark", f"run/{sick}/overview", WIDE, "dark"
    yield "distributions-dark", f"run/{run}/distributions", WIDE, "dark"
    yield "tokens-narrow", f"run/{sick}/tokens", NARROW, "light"


def take(browser: Browser, address: str, args: argparse.Namespace) -> None:
    """One picture after the other."""
    for name, route, size, theme in routes(args):
        page = browser.new_page(viewport=size, color_scheme=theme)
        page.goto(f"{address}/#/{route}")
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        page.wait_for_timeout(1500)
        path = args.to / f"dashboard-{name}.png"
        page.screenshot(path=path)
        page.close()
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Serve, take, say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--run", required=True)
    parser.add_argument("--sick", required=True)
    parser.add_argument("--compare", required=True)
    parser.add_argument("--rollout", default="", help='for Tokens, such as "step=4&rollout=KEY&"')
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with served(args.runs) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        take(browser, address, args)
        browser.close()


if __name__ == "__main__":
    main()
