"""Two or more runs in one picture, seeds joined with an interval, and where their settings differ."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import re
import statistics

from playwright.sync_api import Page, expect

from tests.browser.runs import SHIFT, recorded_metrics
from tests.browser.serving import Watched
from tests.browser.test_browser_pages import digits, last, near

T_OF_THREE = 4.302653
"""97.5% quantile of Student's t with two degrees of freedom."""


def readout(page: Page, key: str) -> str:
    return page.locator(f'figure[data-key="{key}"] output.readout').inner_text()


def values_in(text: str, names: list[str]) -> list[float]:
    """The number behind each name in "a 0.1 · b 0.2"."""
    return [digits(text.split(f"{name} ", 1)[1])[0] for name in names]


def test_two_runs_have_a_curve_each(watched: Watched):
    page = watched.visit("compare?join=0&runs=recorded-1,other")
    final = last(recorded_metrics("reward/outcome"))
    found = values_in(readout(page, "reward/outcome"), ["recorded-1", "other"])
    assert near(found[0], final + SHIFT)
    assert near(found[1], final - SHIFT)
    expect(page.locator("main")).to_contain_text("recorded-1")
    row = page.locator("tr").filter(has=page.get_by_role("rowheader", name="algorithm.name", exact=True))
    expect(row.locator("td")).to_have_text(["dapo", "sapo"])
    expect(page.get_by_role("rowheader", name="sampling.temperature", exact=True)).to_have_count(0)


def test_runs_are_chosen_from_the_list(watched: Watched):
    page = watched.visit("runs")
    button = page.get_by_role("button", name=re.compile("ompare"))
    expect(button).to_be_disabled()
    for name in ("recorded", "other"):
        page.get_by_role("checkbox", name=re.compile(rf"\b{name}$")).check()
    button.click()
    expect(page.locator('figure[data-key="reward/outcome"]')).to_be_visible()
    expect(page.get_by_role("rowheader", name="run.seed", exact=True)).to_be_visible()


def test_seeds_are_joined_to_a_mean_with_its_interval(watched: Watched):
    page = watched.visit("compare?runs=recorded,recorded-1,recorded-2,other")
    join = page.get_by_role("checkbox", name=re.compile("join"))
    if not join.is_checked():
        join.check()
    final = last(recorded_metrics("reward/outcome"))
    expect(page.locator("main")).to_contain_text("3 seeds")
    expect(page.locator('figure[data-key="reward/outcome"] output.readout')).to_contain_text("dapo")
    (mean,) = values_in(readout(page, "reward/outcome"), ["dapo"])
    assert near(mean, final + SHIFT), "the middle of three shifts"
    values = [0.25, 0.25 + SHIFT, 0.25 + 2 * SHIFT]
    half = T_OF_THREE * statistics.stdev(values) / math.sqrt(3)
    low, high = page.evaluate(
        "([a, b, c]) => import('/static/seeds.js').then(seeds => seeds.interval([a, b, c], b))",
        values,
    )
    assert math.isclose(low, values[1] - half, rel_tol=1e-3)
    assert math.isclose(high, values[1] + half, rel_tol=1e-3)
    join.uncheck()
    texts = ["recorded", "recorded-1", "recorded-2", "other"]
    expect(page.locator('figure[data-key="reward/outcome"] output.readout')).to_contain_text("recorded-2")
    assert near(values_in(readout(page, "reward/outcome"), texts)[2], final + 2 * SHIFT)


def test_another_metric_is_added(watched: Watched):
    page = watched.visit("compare?runs=recorded,other")
    expect(page.locator('figure[data-key="ratio/token_max"]')).to_have_count(0)
    page.get_by_label("Another metric").select_option("ratio/token_max")
    figure = page.locator('figure[data-key="ratio/token_max"]')
    expect(figure.locator("canvas").first).to_be_visible()
    expect(figure.locator("output.readout")).to_contain_text(re.compile(r"other \d"))


def test_one_run_is_not_compared(watched: Watched):
    page = watched.visit("compare?runs=recorded")
    expect(page.get_by_role("alert")).to_contain_text("two or more")
