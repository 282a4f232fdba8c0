"""Rollouts: filters, search, what leads on to tokens, and the mark for the better of two answers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens
from tests.browser.runs import RECORDED
from tests.browser.serving import Watched, served
from trimtab.rewards.pairs import read_pairs

STEP = 2
ROUTE = f"run/recorded/rollouts?step={STEP}"


def rows(step: int = STEP) -> list[dict[str, Any]]:
    return pq.read_table(RECORDED / "rollouts" / f"{step:06d}.parquet").to_pylist()


def key(row: dict[str, Any]) -> str:
    return f"{row['group']}/{row['index']}"


def is_clipped(row: dict[str, Any]) -> bool:
    if row["gates"] is None:
        return False
    trained = zip(row["gates"], row["trained"], row["advantages"], strict=True)
    return any(gate <= 1e-6 for gate, in_loss, advantage in trained if in_loss and advantage != 0)


FILTERS = {
    "all": lambda row: True,
    "right": lambda row: row["grade"] == "right",
    "wrong": lambda row: row["grade"] == "wrong",
    "truncated": lambda row: row["finish"] == "length",
    "clipped": is_clipped,
    "flagged": lambda row: row["flag"] is not None,
    "dropped": lambda row: not row["kept"],
}


def two_answers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two different answers to one prompt."""
    for first in rows():
        for second in rows():
            if first["group"] == second["group"] and first["text"] != second["text"]:
                return first, second
    raise AssertionError("the recorded step has no group with two different answers")


def shown(page: Page) -> set[str]:
    return set(page.locator("[data-rollout]").evaluate_all("all => all.map(one => one.dataset.rollout)"))


def test_a_filter_shows_what_the_file_says(watched: Watched):
    page = watched.visit(ROUTE)
    for name, test in FILTERS.items():
        expected = {key(row) for row in rows() if test(row)}
        assert expected, f"the recorded step must have rollouts that are {name}"
        page.select_option("#filter", name)
        assert shown(page) == expected
        expect(page.get_by_role("status").first).to_contain_text(f"{len(expected)} of {len(rows())}")


def test_groups_stand_together_with_prompt_answer_grade_and_reason(watched: Watched):
    page = watched.visit(ROUTE)
    dropped = next(row for row in rows() if not row["kept"])
    group = page.locator(f'[data-group="{dropped["group"]}"]')
    expect(group).to_contain_text(dropped["prompt"])
    expect(group).to_contain_text(f"dropped: {dropped['reason']}")
    members = [row for row in rows() if row["group"] == dropped["group"]]
    expect(group.locator("[data-rollout]")).to_have_count(len(members))
    for row in members:
        card = page.locator(f'[data-rollout="{key(row)}"]')
        expect(card).to_contain_text(row["grade"])
        expect(card).to_contain_text(f"{row['length']} tokens")
        assert row["text"].strip() in card.locator("pre").inner_text()
    tops = group.locator("[data-rollout]").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().top)"
    )
    assert max(tops) - min(tops) < 2, "answers of a group stand side by side"
    flagged = next(row for row in rows() if row["flag"] is not None)
    expect(page.locator(f'[data-group="{flagged["group"]}"]')).to_contain_text(flagged["flag"])


def test_search_finds_text_of_prompts_and_answers(watched: Watched):
    page = watched.visit(ROUTE)
    words = rows()[0]["text"].split("\n")[0][:6].lower()
    page.fill("#search", words)
    expected = {key(row) for row in rows() if words in row["text"].lower() or words in row["prompt"].lower()}
    assert 0 < len(expected) < len(rows())
    expect(page.locator("[data-rollout]")).to_have_count(len(expected))
    assert shown(page) == expected
    page.fill("#search", "no answer says this")
    expect(page.locator("[data-rollout]")).to_have_count(0)


def test_the_step_is_chosen_and_stands_in_the_address(watched: Watched):
    page = watched.visit("run/recorded/rollouts?step=0&filter=right")
    assert shown(page) == {key(row) for row in rows(0) if row["grade"] == "right"}
    page.select_option("#filter", "all")
    page.select_option("#step", "3")
    expect(page.locator(f'[data-rollout="{key(rows(3)[0])}"]')).to_be_visible()
    assert shown(page) == {key(row) for row in rows(3)}


def test_an_answer_leads_to_its_tokens(watched: Watched):
    page = watched.visit(ROUTE)
    row = next(row for row in rows() if row["token_ids"] is not None)
    page.locator(f'[data-rollout="{key(row)}"]').get_by_role("link").click()
    expect(page.locator('[data-page="tokens"]')).to_contain_text(key(row))
    expect(page.locator(".tokens .token")).to_have_count(len(row["token_ids"]))


def test_the_better_of_two_answers_is_appended_to_the_pairs(tmp_path: Path, opens: Opens):
    shutil.copytree(RECORDED, tmp_path / "recorded")
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "recorded").rglob("*"))
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n')
    first, second = two_answers()
    with served(tmp_path / "recorded", pairs) as site:
        page = opens(site).visit(ROUTE)
        better = page.locator(f'[data-rollout="{key(first)}"]').get_by_role("button")
        worse = page.locator(f'[data-rollout="{key(second)}"]').get_by_role("button")
        better.focus()
        page.keyboard.press("Enter")
        worse.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_text("pairs.jsonl")).to_be_visible()
    found = read_pairs(pairs).pairs
    assert len(found) == 2
    assert (found[1].prompt, found[1].chosen, found[1].rejected) == (
        first["prompt"],
        first["text"],
        second["text"],
    )
    assert (found[1].run, found[1].step) == ("recorded", STEP)
    assert (found[1].chosen_rollout, found[1].rejected_rollout) == (key(first), key(second))
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "recorded").rglob("*")) == before


def test_without_pairs_there_is_nothing_to_mark(watched: Watched):
    page = watched.visit(ROUTE)
    expect(page.locator("[data-rollout]").first).to_be_visible()
    expect(page.locator("[data-rollout]").get_by_role("button")).to_have_count(0)


def test_a_finding_leads_to_the_rollouts_and_tokens_that_show_it(watched: Watched):
    page = watched.visit("run/recorded/doctor")
    finding = page.locator('[data-rule="updates-too-large"]')
    expect(finding).to_contain_text("learning_rate = 0.0002")
    link = finding.locator('a[href*="tokens"], a[href*="rollouts"]').first
    link.click()
    expect(page.locator('[data-page="tokens"]')).to_be_visible()
    expect(page.locator(".tokens .token.marked").first).to_be_visible()
    marked = page.locator(".tokens .token.marked").evaluate_all(
        "all => all.map(one => Number(one.dataset.index))"
    )
    assert marked == list(range(3, 12)), "the tokens that the finding names"


def test_a_finding_whose_rollouts_have_no_tokens_still_shows_them(watched: Watched):
    page = watched.visit("run/recorded/doctor")
    link = page.locator('[data-rule="outcome-falls"]').locator('a[href*="sums-"]').first
    href = link.get_attribute("href") or ""
    shown_key = next(key(row) for row in rows(7) if key(row).split("#")[0] in href and "2F0" in href)
    link.click()
    row = next(row for row in rows(7) if key(row) == shown_key)
    expect(page.locator("main")).to_contain_text(row["text"].split("\n")[0])
    expect(page.locator("main")).to_contain_text(row["prompt"])
    if page.locator('[data-page="tokens"]').count():
        watched.allow("404")


def test_evidence_leads_to_its_curve(watched: Watched):
    page = watched.visit("run/recorded/doctor")
    link = page.locator("[data-rule]").locator('a[href*="curves"]').first
    metric = link.inner_text()
    link.click()
    expect(page.locator(f'[data-metric="{metric}"]')).to_be_visible()
