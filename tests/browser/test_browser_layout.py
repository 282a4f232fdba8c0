"""Looks and reach: two widths, two themes, contrast, nothing over anything, all by the keyboard alone."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NARROW, WIDE
from tests.browser.serving import Watched

MEASURES = Path(__file__).with_name("measure_layout.js").read_text()
PAGES = {
    "runs": "runs",
    "compare": "compare?runs=recorded,recorded-1,recorded-2,other",
    "overview": "run/recorded/overview",
    "curves": "run/recorded/curves?show=ratio",
    "distributions": "run/recorded/distributions",
    "rollouts": "run/recorded/rollouts?step=2&filter=clipped",
    "tokens": "run/recorded/tokens?step=2",
    "prompts": "run/recorded/prompts",
    "doctor": "run/recorded/doctor",
    "config": "run/recorded/config",
    "events": "run/recorded/events",
}
LONG_PAGES = ("curves", "prompts", "events", "rollouts", "config")
FOCUSABLE = """() => [...document.querySelectorAll(
  "a[href], button:not(:disabled), select, input:not(:disabled), summary, [tabindex='0']"
)].filter(one => one.checkVisibility({ visibilityProperty: true })
  && !one.closest("details:not([open]) > :not(summary)"))"""


def measure(page: Page, what: str) -> object:
    return page.evaluate(f"() => {{ {MEASURES}; return {what}(); }}")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_at_both_widths_and_in_both_themes(name: str, watched: Watched):
    page = watched.visit(PAGES[name])
    page.evaluate("document.querySelectorAll('details').forEach((one, place) => { one.open = place < 3; })")
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        page.wait_for_timeout(60)
        assert measure(page, "sideways") <= 0, size
        assert measure(page, "overlaps") == [], size
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(30)
        assert measure(page, "faint") == [], scheme
    assert measure(page, "nameless") == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("name", [name for name in PAGES if name not in LONG_PAGES])
def test_tab_reaches_everything_and_shows_where_it_is(name: str, watched: Watched):
    page = watched.visit(PAGES[name])
    number = "all => { all.forEach((one, i) => { one.dataset.stop = i; }); return all.length; }"
    wanted = page.evaluate(f"() => ({number})(({FOCUSABLE})())")
    assert wanted > 5
    reached: list[int] = []
    for _ in range(wanted + 15):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => {
              const one = document.activeElement;
              if (!one?.dataset.stop) return null;
              const style = getComputedStyle(one);
              const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
              return [Number(one.dataset.stop), ring || one.matches(".skip")];
            }"""
        )
        if at is None:
            continue
        assert at[1], f"nothing shows that stop {at[0]} has the focus"
        reached.append(at[0])
        if len(set(reached)) == wanted:
            break
    assert sorted(set(reached)) == list(range(wanted))
    assert reached[:wanted] == sorted(reached[:wanted]), "the order of the page"


def test_the_first_stop_skips_to_the_content(watched: Watched):
    page = watched.visit("run/recorded/overview")
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.locator('[data-page="overview"]')).to_be_visible()
    assert "overview" in page.url
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_whole_visit_without_a_pointer(watched: Watched):
    page = watched.visit("runs")
    page.get_by_role("link", name="recorded", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator('[data-page="overview"]')).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Rollouts").focus()
    page.keyboard.press("Enter")
    expect(page.locator('[data-page="rollouts"]')).to_be_visible()
    page.locator("#filter").focus()
    page.keyboard.type("flagged")
    page.keyboard.press("Escape")
    page.locator("#search").focus()
    page.keyboard.type("=")
    expect(page.locator("[data-rollout]").first).to_be_visible()
    page.go_back()
    expect(page.locator('[data-page="overview"]')).to_be_visible()


def test_the_theme_is_switched_and_remembered(watched: Watched):
    page = watched.visit("runs")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").press("Enter")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.evaluate(ground) == dark


def test_every_page_has_one_heading_and_its_landmarks(watched: Watched):
    for name in ("runs", "overview", "tokens", "compare"):
        page = watched.visit(PAGES[name])
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("main")).to_have_count(1)
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.title()
