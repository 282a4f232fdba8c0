"""Every page of the recorded run says what its files say, read here without the dashboard."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
from playwright.sync_api import Page, expect

from tests.browser.runs import RECORDED, SHIFT, recorded_lines, recorded_metrics
from tests.browser.serving import Watched, until

RUN = "run/recorded"
INKED = """canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    seen.add((pixels[i] << 24) | (pixels[i + 1] << 16) | (pixels[i + 2] << 8) | pixels[i + 3]);
  }
  return seen.size;
}"""
"""Colours on a canvas: one where nothing is drawn."""

HAS_DIGIT = "one => /[0-9]/.test(one.textContent)"
PICTURE = """() => document.querySelector("figure[data-key='policy/entropy'] canvas").toDataURL()"""


def digits(text: str) -> list[float]:
    found = re.findall(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", text.replace("\u2212", "-"))
    return [float(number.replace(",", "")) for number in found]


def last(values: dict[int, float]) -> float:
    return values[max(values)]


def near(found: float, expected: float) -> bool:
    return abs(found - expected) <= 0.006 * max(abs(expected), 1e-9) + 1e-9


def assert_drawn(page: Page, figure: str) -> None:
    canvas = page.locator(f"{figure} canvas").first
    expect(canvas).to_be_visible()
    until(page, f"canvas => ({INKED})(canvas) > 3", canvas.element_handle())


def test_the_list_has_every_run_with_state_steps_and_last_values(watched: Watched):
    page = watched.visit("runs")
    expect(page.locator("tbody tr")).to_have_count(4)
    for name, shift in (
        ("recorded", 0.0),
        ("recorded-1", SHIFT),
        ("recorded-2", 2 * SHIFT),
        ("other", -SHIFT),
    ):
        row = page.locator("tbody tr").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(row.locator(".state")).to_contain_text("finished")
        expect(row).to_contain_text("8 of 8")
        expect(row).to_contain_text("sapo" if name == "other" else "dapo")
        expected = last(recorded_metrics("reward/outcome")) + shift
        assert any(near(value, expected) for value in digits(row.inner_text())), row.inner_text()
    page.get_by_role("link", name="recorded", exact=True).click()
    expect(page.locator('[data-page="overview"]')).to_be_visible()


def test_the_overview_begins_with_the_verdict_and_ends_with_the_curves(watched: Watched):
    page = watched.visit(f"{RUN}/overview")
    verdict = page.locator(".verdict")
    expect(verdict).to_have_class(re.compile("critical"))
    expect(verdict).to_contain_text("held-out pass@1 fell from 0.328 to 0.047")
    first_curve = page.locator("figure[data-key]").first
    assert verdict.bounding_box()["y"] < first_curve.bounding_box()["y"]
    keys = page.locator("figure[data-key]").evaluate_all("all => all.map(one => one.dataset.key)")
    assert len(keys) == 8
    for key in keys:
        readout = page.locator(f'figure[data-key="{key}"] output.readout').inner_text()
        assert near(digits(readout)[0], last(recorded_metrics(key))), (key, readout)
        assert_drawn(page, f'figure[data-key="{key}"]')
    evaluated = [event for event in recorded_lines("events.jsonl") if event["event"] == "evaluated"]
    table = page.get_by_role("region", name="Before and after")
    expect(table.locator("tbody tr")).to_have_count(len(evaluated))
    for row, event in zip(table.locator("tbody tr").all(), evaluated, strict=True):
        assert event["label"] in row.inner_text()
        assert any(near(value, event["pass@1"]) for value in digits(row.inner_text()))
    expect(table.locator("tbody tr").last).to_contain_text("worse")
    expect(page.locator("main")).to_contain_text("8 of 8")


def test_curves_has_every_metric_once_with_its_last_value(watched: Watched):
    page = watched.visit(f"{RUN}/curves")
    shown = page.locator("[data-metric]").evaluate_all("all => all.map(one => one.dataset.metric)")
    recorded = {key for line in recorded_lines("metrics.jsonl") for key in line["metrics"]}
    evaluation = {key for key in shown if key.startswith("evaluation/")}
    assert set(shown) - evaluation == recorded
    assert len(shown) == len(set(shown))
    assert "evaluation/pass@1" in evaluation
    for section in page.locator("[data-section]").all():  # curves are loaded as they come into sight
        section.evaluate("one => one.scrollIntoView({ block: 'start' })")
        section.evaluate("one => one.scrollIntoView({ block: 'end' })")
        until(
            page,
            f"section => [...section.querySelectorAll('output.readout')].every({HAS_DIGIT})",
            section.element_handle(),
        )
    newest: dict[str, float] = {}
    for line in recorded_lines("metrics.jsonl"):
        newest |= line["metrics"]
    told = page.locator("[data-metric]").evaluate_all(
        "all => all.map(one => [one.dataset.metric, one.querySelector('output.readout').textContent])"
    )
    wrong = [(key, text) for key, text in told if key in newest and not near(digits(text)[0], newest[key])]
    assert wrong == []
    sections = page.locator("[data-section] h2").all_inner_texts()
    assert len(sections) > 8


def test_curves_are_searched_smoothed_and_put_on_a_log_scale(watched: Watched):
    page = watched.visit(f"{RUN}/curves")
    page.fill("#search", "entropy_loss_that_is_not_there")
    expect(page.locator("[data-metric]:visible")).to_have_count(0)
    page.fill("#search", "policy/entropy")
    visible = page.locator("[data-metric]:visible")
    names = visible.evaluate_all("all => all.map(one => one.dataset.metric)")
    assert "policy/entropy" in names
    assert all("policy/entropy" in name for name in names)
    assert_drawn(page, 'figure[data-key="policy/entropy"]')
    picture = page.evaluate(PICTURE)
    page.locator("#smooth").fill("0.9")
    until(page, f"before => ({PICTURE})() !== before", picture)
    page.locator("#smooth").fill("0")
    until(page, f"before => ({PICTURE})() === before", picture)
    page.check("#log")
    until(page, f"before => ({PICTURE})() !== before", picture)
    box = page.locator('[data-metric="policy/entropy"]')
    box.locator("summary").click()
    expect(box.locator("dl")).to_contain_text("nats")


def test_a_curve_is_read_by_the_pointer_and_by_the_arrow_keys(watched: Watched):
    page = watched.visit(f"{RUN}/curves?show=policy/entropy")
    figure = page.locator('figure[data-key="policy/entropy"]')
    values = recorded_metrics("policy/entropy")
    canvas = figure.locator("canvas").first
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    expect(figure.locator("output.readout")).to_contain_text(re.compile(r"step \d"))
    page.mouse.move(2, 2)
    figure.locator('[tabindex="0"]').first.focus()
    seen = []
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
        step, value = digits(figure.locator("output.readout").inner_text())[:2]
        assert near(value, values[int(step)])
        seen.append(int(step))
    assert seen == sorted(values)[-2:-5:-1]


def test_distributions_has_a_heat_map_for_each_histogram_and_the_gate(watched: Watched):
    page = watched.visit(f"{RUN}/distributions")
    stored = recorded_lines("distributions.jsonl")
    keys = {key for line in stored[-1:] for key in line["distributions"]}
    shown = page.locator(".page figure[data-key]").evaluate_all("all => all.map(one => one.dataset.key)")
    assert keys <= set(shown)
    for key in sorted(keys):
        figure = f'figure[data-key="{key}"]'
        page.locator(figure).scroll_into_view_if_needed()
        assert_drawn(page, figure)
        expect(page.locator(f"{figure} output.readout")).to_contain_text("median")
    gate = page.locator("figure.gate")
    expect(gate).to_contain_text("dapo")
    expect(gate).to_contain_text("0.28")
    ratio = page.locator('figure[data-key="ratio/token"]')
    canvas = ratio.locator("canvas").first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(ratio.locator("output.readout")).to_contain_text("of the values")
    canvas.focus()
    before = ratio.locator("output.readout").inner_text()
    page.keyboard.press("ArrowLeft")
    expect(ratio.locator("output.readout")).not_to_have_text(before)


def test_prompts_counts_draws_and_rates(watched: Watched):
    page = watched.visit(f"{RUN}/prompts")
    drawn: dict[str, set] = {}
    for path in sorted((RECORDED / "rollouts").glob("*.parquet")):
        table = pq.read_table(path, columns=["prompt_id", "group"]).to_pydict()
        for prompt, group in zip(table["prompt_id"], table["group"], strict=True):
            drawn.setdefault(prompt, set()).add((path.name, group))
    expect(page.locator("main")).to_contain_text(f"{len(drawn)} prompts")
    most = max(len(groups) for groups in drawn.values())
    expect(page.locator("tbody tr").first.locator("td").first).to_have_text(str(most))
    rows = page.locator("tbody tr").count()
    assert rows == len(drawn)
    expect(page.locator("tbody svg").first).to_be_visible()
    text = page.locator("tbody th").first.inner_text()
    page.get_by_role("searchbox").fill(text.strip()[:8])
    expect(page.locator("tbody tr").first.locator("th")).to_contain_text(text.strip()[:8])
    expect(page.locator("tbody tr")).not_to_have_count(rows)
    for band in ("never right", "always right"):
        expect(page.locator(".bands")).to_contain_text(band)


def test_config_has_every_setting_and_where_it_ran(watched: Watched):
    page = watched.visit(f"{RUN}/config")
    text = page.locator("main").inner_text()
    described = json.loads((RECORDED / "run.json").read_text())
    for name in (
        "trainer.learning_rate",
        "sampling.max_new_tokens",
        "algorithm.clip_high",
        "data.train_prompts",
    ):
        section, key = name.split(".")
        block = page.locator("section").filter(has=page.get_by_role("heading", name=section, exact=True))
        row = block.locator("tr").filter(has=page.get_by_role("rowheader", name=key, exact=True))
        expect(row.locator("td")).to_have_text(json.dumps(described["run"][section][key]))
    assert described["versions"]["torch"] in text
    assert described["facts"]["opening"][0].strip() in text


def test_events_are_listed_newest_first_and_chosen_by_kind(watched: Watched):
    page = watched.visit(f"{RUN}/events")
    stored = recorded_lines("events.jsonl")
    rows = page.locator("tr[data-event]")
    expect(rows).to_have_count(len(stored))
    kinds = rows.evaluate_all("all => all.map(one => one.dataset.event)")
    assert kinds == [event["event"] for event in reversed(stored)]
    page.get_by_label("Kind of event").select_option("evaluated")
    expect(page.locator("tr[data-event]:visible")).to_have_count(kinds.count("evaluated"))


def test_an_unknown_run_and_page_are_told_in_a_sentence(watched: Watched):
    page = watched.visit("run/absent/overview")
    expect(page.get_by_role("alert")).to_contain_text("absent")
    watched.allow("404")
    watched.visit("run/recorded/constructor")
    expect(page.get_by_role("alert")).to_contain_text("constructor")
