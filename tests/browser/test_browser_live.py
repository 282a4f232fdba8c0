"""A run that is being written: its pages follow without a reload, and say so when its process dies."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opens
from tests.browser.runs import RECORDED
from tests.browser.serving import served, until
from trimtab.dashboard import store as store_module
from trimtab.dashboard.store import OpenRun
from trimtab.record.reader import RunReader

ROOT = Path(__file__).parents[2]
CANVAS = "figure[data-key='reward/outcome'] canvas"


class Writer:
    """The writing process; every call returns when the line is on disk."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.browser.live_writer", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self._answer("ready")

    def step(self, step: int, **metrics: float) -> None:
        self._tell({"step": step, "metrics": {key.replace("__", "/"): x for key, x in metrics.items()}})

    def event(self, event: str, **fields: object) -> None:
        self._tell({"event": event, **fields})

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _tell(self, fields: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(fields) + "\n")
        self.process.stdin.flush()
        self._answer("written")

    def _answer(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "runs" / "live")
    yield made
    made.kill()


def test_pages_follow_a_running_experiment_until_it_is_killed(writer: Writer, tmp_path: Path, opens: Opens):
    for step in range(3):
        writer.step(step, reward__outcome=0.25, policy__entropy=2.0)
    with served(tmp_path / "runs") as site:
        overview, events = opens(site), opens(site)
        page = overview.visit("run/live/overview")
        listed = events.visit("run/live/events")
        page.evaluate("window.mark = 'never reloaded'")
        expect(page.locator(".state").first).to_contain_text("running")
        expect(page.locator("main")).to_contain_text("step 3 of 50")
        readout = page.locator('figure[data-key="reward/outcome"] output.readout')
        expect(readout).to_contain_text("0.25")
        picture = page.locator('figure[data-key="reward/outcome"] canvas').first.screenshot()

        writer.step(3, reward__outcome=0.875, policy__entropy=1.5)
        writer.event("warned", message="the disk is nearly full")
        expect(readout).to_contain_text("0.875")
        expect(page.locator("main")).to_contain_text("step 4 of 50")
        expect(page.locator('figure[data-key="policy/entropy"] output.readout')).to_contain_text("1.5")
        expect(listed.locator('tr[data-event="warned"]')).to_contain_text("the disk is nearly full")
        assert page.locator('figure[data-key="reward/outcome"] canvas').first.screenshot() != picture

        writer.kill()
        expect(page.locator(".state").first).to_contain_text("killed")
        expect(listed.locator(".state").first).to_contain_text("killed")
        expect(page.locator("main")).to_contain_text("its process is gone")
        assert page.evaluate("window.mark") == "never reloaded"
        page = overview.visit("runs")
        expect(page.locator("tbody tr .state")).to_contain_text("killed")


def test_what_comes_later_appears_by_itself(writer: Writer, tmp_path: Path, opens: Opens):
    with served(tmp_path / "runs") as site:
        overview, curves = opens(site), opens(site)
        first = overview.visit("run/live/overview")
        expect(first.locator("main")).to_contain_text("no step yet")
        writer.step(0, reward__outcome=0.25)
        expect(first.locator('figure[data-key="reward/outcome"] output.readout')).to_contain_text("0.25")
        page = curves.visit("run/live/curves")
        expect(page.locator('[data-metric="reward/outcome"] output.readout')).to_contain_text("0.25")
        expect(page.locator('[data-metric="policy/entropy"]')).to_have_count(0)
        writer.step(1, reward__outcome=0.5, policy__entropy=0.75)
        expect(page.locator('[data-metric="policy/entropy"] output.readout')).to_contain_text("0.75")


def test_a_folder_without_runs_says_how_to_start_one(tmp_path: Path, opens: Opens):
    with served(tmp_path) as site:
        page = opens(site).visit("runs")
        expect(page.locator("main")).to_contain_text("trimtab train quickstart")


def test_a_long_record_shows_some_steps_at_once_and_all_of_them_without_a_reload(
    opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read_on = threading.Event()

    def later(run: OpenRun) -> RunReader:
        assert read_on.wait(30)
        return RunReader(tmp_path / run.id)

    monkeypatch.setattr(store_module, "LONG_BYTES", 0)
    monkeypatch.setattr(store_module, "GLIMPSE", 3)
    monkeypatch.setattr(OpenRun, "_read_whole", later)
    shutil.copytree(RECORDED, tmp_path / "recorded")
    with served(tmp_path) as base:
        page = opens(base).visit("run/recorded/overview")
        expect(page.locator(".runhead")).to_contain_text("a first look")
        first = page.locator(CANVAS).first.evaluate("canvas => canvas.toDataURL()")
        read_on.set()
        expect(page.locator(".runhead")).not_to_contain_text("a first look", timeout=15_000)
        until(page, f"before => document.querySelector({CANVAS!r}).toDataURL() !== before", first)
