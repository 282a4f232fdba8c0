"""The report: one file that opens from the disk with every view, and asks nobody for anything."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opens
from tests.browser.runs import RECORDED, recorded_metrics
from tests.browser.serving import Watched
from tests.browser.test_browser_pages import assert_drawn, digits, last, near
from tests.browser.test_browser_rollouts import is_clipped, key, rows
from trimtab.cli import main

PAGES = ("overview", "curves", "distributions", "rollouts", "tokens", "prompts", "doctor", "config", "events")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "recorded.html"
    assert main(["report", str(RECORDED), "--to", str(path)]) == 0
    return path


@pytest.fixture
def report(file: Path, opens: Opens) -> Watched:
    return opens(file.as_uri())


def test_every_view_is_in_the_file(report: Watched, file: Path):
    for name in PAGES:
        page = report.visit(f"run/recorded/{name}")
        expect(page.locator(f'[data-page="{name}"]')).to_be_visible()
        expect(page.get_by_role("alert").filter(has_text=re.compile(r"\w"))).to_have_count(0)
    assert {url.partition("#")[0] for url in report.requests if not url.startswith("data:")} == {
        file.as_uri()
    }
    assert file.stat().st_size < 4_000_000


def test_it_opens_on_the_overview_with_verdict_and_curves(report: Watched):
    report.page.goto(report.base)
    page = report.page
    expect(page.locator(".verdict")).to_contain_text("held-out pass@1 fell")
    assert_drawn(page, 'figure[data-key="reward/outcome"]')
    text = page.locator('figure[data-key="policy/entropy"] output.readout').inner_text()
    assert near(digits(text)[0], last(recorded_metrics("policy/entropy")))


def test_rollouts_tokens_and_other_algorithms_are_in_it(report: Watched):
    page = report.visit("run/recorded/rollouts")
    steps = [int(text) for text in page.locator("#step option").all_inner_texts()]
    assert steps[0] == 0
    assert steps[-1] == 7
    step = next(step for step in steps if any(is_clipped(row) for row in rows(step)))
    page.select_option("#step", str(step))
    expect(page.locator("[data-rollout]")).to_have_count(len(rows(step)))
    page.select_option("#filter", "clipped")
    links = page.get_by_role("link", name="every token")
    row = next(row for row in rows(step) if is_clipped(row))
    assert links.count() >= 1
    links.first.click()
    expect(page.locator(".tokens .token").first).to_be_visible()
    assert key(row).split("#")[0].startswith("sums-")
    page.locator(".tokens .token").nth(3).hover()
    expect(page.locator("#token-readout")).to_contain_text("token 3")
    page.select_option("#as", "sapo")
    expect(page.locator("#token-readout")).to_contain_text("sapo")


def test_it_holds_no_address_of_another_machine(file: Path):
    text = file.read_text(encoding="utf-8")
    code = re.sub(r"data:text/javascript;base64,[A-Za-z0-9+/=]+", "", text)
    assert re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", code) == []
    assert "'unsafe" not in text.split("</head>")[0].split("Content-Security-Policy")[1].split(">")[0]


def test_an_existing_file_is_replaced_on_demand_only(file: Path, capsys: pytest.CaptureFixture[str]):
    before = file.read_bytes()
    assert main(["report", str(RECORDED), "--to", str(file)]) != 0
    assert "--force" in capsys.readouterr().err
    assert file.read_bytes() == before
