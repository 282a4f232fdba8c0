"""Tokens: colours, numbers by pointer and keyboard, whole characters, another algorithm, thousands."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens
from tests.browser.runs import rollout, written_run
from tests.browser.serving import Watched, served
from tests.browser.test_browser_rollouts import STEP, is_clipped, key, rows

LONG = 8000


def clipped_row() -> dict[str, Any]:
    return next(row for row in rows() if is_clipped(row))


def route(row: dict[str, Any], **more: object) -> str:
    rest = "".join(f"&{name}={value}" for name, value in more.items())
    return f"run/recorded/tokens?step={STEP}&rollout={key(row).replace('#', '%23')}{rest}"


def background(page: Page, place: int) -> str:
    token = page.locator(f'.tokens .token[data-index="{place}"]')
    return token.evaluate("one => getComputedStyle(one).backgroundColor")


def told(page: Page) -> str:
    return page.locator("#token-readout").inner_text()


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a run with characters of several tokens, and an answer of thousands."""
    settings = {
        "run": {"name": "hand", "steps": 1},
        "algorithm": {"name": "dapo"},
        "sampling": {"max_new_tokens": 9000, "samples_per_prompt": 2},
    }
    wide = lambda place: 1.5 if place % 10 == 0 else 1.0  # noqa: E731
    answers = [
        rollout("漢字 and 👩🏽‍🚀 stay whole\n\tend", index=0, ratio=wide),
        rollout("b" * 40, index=1, advantage=-1.0, ratio=lambda place: 0.5),
        rollout("word " * (LONG // 5), group="long#0", index=0, ratio=wide),
        rollout("no", group="long#0", index=1, advantage=-1.0),
    ]
    folder = tmp_path_factory.mktemp("tokens") / "hand"
    written_run(folder, metrics=[{"reward/mean": 0.5}], rollouts={0: answers}, settings=settings)
    with served(folder) as address:
        yield address


def test_every_token_has_its_own_numbers_under_the_pointer(watched: Watched):
    row = clipped_row()
    page = watched.visit(route(row))
    assert page.locator(".tokens .token").count() == len(row["token_ids"])
    for place in (0, len(row["token_ids"]) // 2, len(row["token_ids"]) - 1):
        page.locator(f'.tokens .token[data-index="{place}"]').hover()
        text = told(page)
        assert f"token {place}" in text
        assert str(row["token_ids"][place]) in text
        numbers = [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text.replace("\u2212", "-"))]
        for column in ("sampler_logprobs", "new_logprobs", "ratios", "gates", "advantages"):
            wanted = row[column][place]
            assert any(abs(x - wanted) <= 2e-3 * max(abs(wanted), 1e-3) for x in numbers), (
                column,
                wanted,
                text,
            )


def test_the_keyboard_moves_over_tokens(watched: Watched):
    page = watched.visit(route(clipped_row()))
    page.locator(".tokens").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", "0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", "2")
    assert "token 2" in told(page)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", "1")
    page.keyboard.press("End")
    last = len(clipped_row()["token_ids"]) - 1
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", str(last))
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", str(last))
    page.keyboard.press("Home")
    expect(page.locator(".tokens .token.at")).to_have_attribute("data-index", "0")


def test_colours_follow_the_measure(watched: Watched):
    row = clipped_row()
    page = watched.visit(route(row))
    measures = page.locator("#measure option").evaluate_all("all => all.map(one => one.value)")
    assert {"ratios", "gates", "advantages", "change", "entropies", "new_logprobs"} <= set(measures)
    page.select_option("#measure", "gates")
    cut = next(place for place, gate in enumerate(row["gates"]) if gate == 0 and row["advantages"][place])
    whole = row["gates"].index(1.0)
    assert background(page, cut) != background(page, whole)
    expect(page.locator(".legend-line")).to_contain_text("cut")
    page.select_option("#measure", "entropies")
    order = sorted(range(len(row["entropies"])), key=lambda place: row["entropies"][place])
    assert background(page, order[0]) != background(page, order[-1])


def test_as_if_shows_the_same_tokens_under_another_algorithm(watched: Watched):
    row = clipped_row()
    page = watched.visit(route(row))
    page.select_option("#measure", "gates")
    cut = next(place for place, gate in enumerate(row["gates"]) if gate == 0 and row["advantages"][place])
    own = background(page, cut)
    page.select_option("#as", "sapo")
    expect(page.locator("#token-readout")).to_contain_text("sapo")
    assert background(page, cut) != own, "a soft gate does not cut this token off"
    page.locator(f'.tokens .token[data-index="{cut}"]').hover()
    gate = page.locator("#token-readout tr").filter(
        has=page.get_by_role("rowheader", name="gate", exact=True)
    )
    cells = [float(text) for text in gate.locator("td").all_inner_texts()]
    assert cells[0] == 0.0
    assert 0.0 < cells[1] < 1.0
    page.select_option("#as", "")
    expect(page.locator("#token-readout")).not_to_contain_text("sapo")
    assert background(page, cut) == own


def test_characters_of_several_tokens_stay_whole(hand: str, opens: Opens):
    page = opens(hand).visit("run/hand/tokens?step=0&rollout=p%230/0")
    texts = page.locator(".tokens .token").all_text_contents()
    assert texts[:2] == ["漢", "字"]
    assert "👩" in "".join(texts)
    assert "🚀" in "".join(texts)
    assert "\ufffd" not in "".join(texts)
    page.locator(".tokens .token").first.hover()
    assert "tokens 0 to 2" in told(page)
    assert all(str(byte) in told(page) for byte in "漢".encode())


def test_thousands_of_tokens_come_at_once_and_answer_at_once(hand: str, opens: Opens):
    watched = opens(hand)
    began = time.perf_counter()
    page = watched.visit("run/hand/tokens?step=0&rollout=long%230/0")
    expect(page.locator(".tokens .token").first).to_be_visible()
    shown = time.perf_counter() - began
    expect(page.locator(".tokens .token")).to_have_count(LONG + 1)
    began = time.perf_counter()
    page.select_option("#measure", "gates")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert time.perf_counter() - began < 2.0
    assert shown < 4.0
    expect(page.locator(".legend-line")).to_contain_text(re.compile("801 of 8,?001"))
    page.locator(".tokens").focus()
    page.keyboard.press("End")
    assert f"token {LONG}" in told(page)
