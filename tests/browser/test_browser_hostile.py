"""Texts that attack the page are shown as text: nothing is made of them, nothing runs, nothing is fetched."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens
from tests.browser.hostile import FOLDER, SURROGATE, TEXTS, hostile_run
from tests.browser.runs import changed_copy, rollout, written_run
from tests.browser.serving import served
from trimtab.dashboard import views
from trimtab.dashboard.report import write_report

PAGES = ("overview", "curves", "distributions", "rollouts", "tokens", "prompts", "doctor", "config", "events")
RUN = f"run/{quote(FOLDER, safe='')}"

MADE = """() => [...document.querySelectorAll(
  ".pwn, body img, body iframe, body object, body embed, body base, body style, body link, body meta, " +
  "main script, main [src], main [onerror], main [onload], main [onmouseover], main [onfocus], " +
  "main [srcdoc], main [formaction], " +
  "a[href]:not([href^='#'])"
)].map(element => element.outerHTML.slice(0, 200))"""

ODD = ("[]", "null", '{"run": 7, "facts": "x"}', '{"schema": 99}', "[" * 100_000, '{"name": NaN}')
"""Descriptions of a run that are none."""

INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069"
    "\u3164\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
FLOOD = re.compile("[\u0300-\u036f\u0483-\u0489]{33}")


class Hostile(NamedTuple):
    site: str
    folder: Path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    root = tmp_path_factory.mktemp("hostile")
    folder = hostile_run(root)
    changed_copy(root / "harmless", {"run.seed": 1})
    with served(root) as address:
        yield Hostile(address, folder)


def assert_harmless(page: Page) -> None:
    assert page.evaluate("window.pwned ?? 0") == 0
    assert page.evaluate("Object.prototype.polluted ?? 0") == 0
    assert page.evaluate(MADE) == []
    text = page.evaluate("document.body.textContent")
    assert sorted({f"U+{ord(found):04X}" for found in INVISIBLE.findall(text)}) == []
    assert FLOOD.search(text) is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def text_of(page: Page) -> str:
    return page.evaluate("document.querySelector('main').textContent")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_a_hostile_run_is_harmless(name: str, hostile: Hostile, opens: Opens):
    page = opens(hostile.site).visit(f"{RUN}/{name}")
    expect(page.locator(f'[data-page="{name}"]')).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.mouse.move(300, 400)
    page.mouse.move(500, 450)
    assert_harmless(page)


def test_the_list_and_the_comparison_are_harmless(hostile: Hostile, opens: Opens):
    watched = opens(hostile.site)
    page = watched.visit("runs")
    expect(page.locator("tbody tr")).to_have_count(2)
    assert_harmless(page)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name=re.compile("ompare")).click()
    expect(page.locator("figure[data-key]").first).to_be_visible()
    expect(page.locator("main")).to_contain_text("hostile")
    assert_harmless(page)


def test_attacks_are_readable_as_what_they_are(hostile: Hostile, opens: Opens):
    watched = opens(hostile.site)
    text = text_of(watched.visit(f"{RUN}/rollouts?step=0"))
    for name in (
        "markup",
        "script",
        "end of a script",
        "frame",
        "templates",
        "entities",
        "style",
        "data: link",
    ):
        assert TEXTS[name] in text, name
    for code in ("U+001B", "U+202E", "U+200B", "U+0000", "U+FEFF"):
        assert code in text, code
    assert "49" not in re.sub(r"\d{3,}", "", TEXTS["templates"])
    assert TEXTS["markup"] in text_of(watched.visit(f"{RUN}/config"))
    assert TEXTS["javascript: link"] in text_of(watched.visit(f"{RUN}/events"))


@pytest.mark.parametrize("name", ["script", "bidirectional controls", "100,000 characters in one line"])
def test_tokens_of_an_attack_are_harmless(name: str, hostile: Hostile, opens: Opens):
    place = list(TEXTS).index(name)
    key = quote(f"{place} {TEXTS[name][:120]}#0/0", safe="")
    page = opens(hostile.site).visit(f"{RUN}/tokens?step=0&rollout={key}")
    expect(page.locator(".tokens .token").first).to_be_visible()
    page.locator(".tokens .token").nth(2).hover()
    assert_harmless(page)


def finding(text: str) -> dict[str, Any]:
    cause = {"name": text, "what": text, "test": text, "change": text}
    evidence = {"text": text, "key": text[:200], "value": 1.0, "baseline": None, "steps": (0, 1)}
    exhibit = {"step": 0, "rollout": text[:200], "why": text, "tokens": (0, 3)}
    rest = {
        "outcome": "found",
        "severity": "critical",
        "confidence": 0.5,
        "missing": (text[:200],),
        "step": 1,
    }
    more = {"evidence": (evidence,), "exhibits": (exhibit,), "causes": (cause,), "source": text}
    return {"rule": text[:200], "title": text, **rest, **more}


def test_findings_are_harmless(hostile: Hostile, opens: Opens, monkeypatch: pytest.MonkeyPatch):
    found = [finding(text) for text in [*TEXTS.values(), SURROGATE]]
    found += [{**one, "outcome": outcome} for one in found for outcome in ("skipped", "clear")]
    told = {"worst": "critical", "verdict": TEXTS["script"], "found": 9, "skipped": 9, "looked": 9, "step": 2}
    monkeypatch.setitem(views.OF_A_RUN, "findings", lambda run, query: {**told, "findings": found})
    watched = opens(hostile.site)
    for name in ("overview", "doctor"):
        page = watched.visit(f"{RUN}/{name}")
        expect(page.locator("main")).to_contain_text(TEXTS["markup"])  # the overview's verdict comes last
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert_harmless(page)


def test_the_report_of_a_hostile_run_is_harmless(hostile: Hostile, tmp_path: Path, opens: Opens):
    file = tmp_path / "report.html"
    write_report(hostile.folder, file)
    watched = opens(file.as_uri())
    for name in ("overview", "rollouts", "tokens", "events", "config"):
        page = watched.visit(f"{RUN}/{name}")
        expect(page.locator(f'[data-page="{name}"]')).to_be_visible()
        assert_harmless(page)


def test_a_broken_record_is_told_of_in_a_sentence(tmp_path: Path, opens: Opens):
    folder = written_run(tmp_path / "broken", metrics=[{"reward/mean": 0.5}], rollouts={0: [rollout("x")]})
    (folder / "rollouts" / "000001.parquet").write_bytes(b"PAR1 this is no Parquet PAR1")
    (folder / "distributions.jsonl").write_text(
        '{"step":0,"distributions":{"ratio/token":{"bins":["x"]}}}\nnot JSON\n'
    )
    os.mkdir(os.fsencode(tmp_path) + b"/no-utf8-\xff")
    (tmp_path / os.fsdecode(b"no-utf8-\xff") / "run.json").write_text("{}")
    for place, text in enumerate(ODD):
        (tmp_path / f"odd-{place}").mkdir()
        (tmp_path / f"odd-{place}" / "run.json").write_text(text)
    with served(tmp_path) as site:
        watched = opens(site)
        page = watched.visit("runs")
        expect(page.get_by_role("link", name="broken")).to_be_visible()
        page = watched.visit("run/broken/rollouts?step=1")
        expect(page.get_by_role("alert")).to_contain_text("000001.parquet")
        watched.visit("run/broken/distributions")
        for place in range(len(ODD)):
            page = watched.visit(f"run/odd-{place}/overview")
            assert len(text_of(page)) > 10
        watched.complaints = [text for text in watched.complaints if not re.search(r"40[04]|500", text)]
