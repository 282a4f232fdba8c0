"""The order of prompts, what is remembered of each, and both after a resume."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.handmade import prompt_of, scored_of
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import Band, MemoryConfig, PromptMemory
from trimtab.errors import DataError, SettingError

PROMPTS = [prompt_of(f"p{i}") for i in range(7)]


def keys(cursor, count):
    return [cursor.draw().key for _ in range(count)]


def test_every_prompt_once_an_epoch_in_a_new_order_with_its_number():
    cursor = PromptCursor(PROMPTS, seed=3)
    epochs = [keys(cursor, 7) for _ in range(3)]
    for number, epoch in enumerate(epochs):
        assert sorted(epoch) == [f"p{i}#{number}" for i in range(7)]
    orders = [[key.split("#")[0] for key in epoch] for epoch in epochs]
    assert orders[0] != orders[1] != orders[2]
    assert cursor.drawn == 21


def test_the_seed_decides_and_no_global_generator_is_used():
    np.random.seed(0)
    first = keys(PromptCursor(PROMPTS, seed=3), 10)
    np.random.seed(1)
    assert keys(PromptCursor(PROMPTS, seed=3), 10) == first
    assert keys(PromptCursor(PROMPTS, seed=4), 10) != first


def test_a_prompt_that_stands_three_times_is_drawn_three_times_with_different_numbers():
    cursor = PromptCursor([PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]], seed=0)
    drawn = keys(cursor, 8)
    assert sorted(drawn) == sorted([f"p0#{i}" for i in range(6)] + [f"p1#{i}" for i in range(2)])


def test_case_35_a_restored_cursor_goes_on_exactly():
    prompts = [*PROMPTS, PROMPTS[0]]
    for stop in range(20):
        cursor = PromptCursor(prompts, seed=5)
        keys(cursor, stop)
        state = json.loads(json.dumps(cursor.state()))
        resumed = PromptCursor(prompts, seed=5)
        resumed.restore(state)
        assert resumed.drawn == stop
        assert keys(resumed, 20) == keys(cursor, 20)


def test_other_data_or_another_seed_is_refused_with_a_sentence():
    state = PromptCursor(PROMPTS, seed=5).state()
    with pytest.raises(DataError, match=r"other prompts \(7 then, 6 now"):
        PromptCursor(PROMPTS[:6], seed=5).restore(state)
    changed = [*PROMPTS[:6], prompt_of("p6", tokens=5)]
    with pytest.raises(DataError, match="other prompts"):
        PromptCursor(changed, seed=5).restore(state)
    with pytest.raises(DataError, match="begun with seed 5, not 6"):
        PromptCursor(PROMPTS, seed=6).restore(state)
    with pytest.raises(DataError, match="no prompt"):
        PromptCursor([], seed=0)
    assert fingerprint(PROMPTS) != fingerprint(PROMPTS[::-1])


def test_memory_is_off_by_default_and_only_observes():
    memory = PromptMemory()
    memory.observe(scored_of([1, 1]), step=4)
    assert memory.wants(prompt_of("p"), 4)
    assert memory.band(prompt_of("p")) is Band.MASTERED


def test_mastered_and_hopeless_prompts_rest_and_are_tested_again():
    memory = PromptMemory(MemoryConfig(mastered_rest=3, hopeless_rest=1))
    memory.observe(scored_of([1, 1], id="mastered"), step=10)
    memory.observe(scored_of([0, 0], id="hopeless"), step=10)
    memory.observe(scored_of([0, 1], id="learning"), step=10)
    memory.observe(scored_of([None, None], id="ungraded"), step=10)
    wanted = {
        step: [
            id
            for id in ("mastered", "hopeless", "learning", "ungraded", "new")
            if memory.wants(prompt_of(id), step)
        ]
        for step in (10, 11, 12, 13, 14)
    }
    assert wanted[10] == wanted[11] == ["learning", "ungraded", "new"]
    assert wanted[12] == wanted[13] == ["hopeless", "learning", "ungraded", "new"]
    assert wanted[14] == ["mastered", "hopeless", "learning", "ungraded", "new"]


def test_bands_follow_the_last_groups_and_moves_are_counted():
    memory = PromptMemory(MemoryConfig(window=2))
    for step, values in enumerate(([0, 0], [0, 0], [0, 1], [1, 1], [1, 1])):
        memory.observe(scored_of(values), step)
    assert memory.pass_rate(prompt_of("p")) == 1.0
    coverage = memory.coverage(prompts=4)
    assert coverage.moves == {
        (Band.UNSEEN, Band.HOPELESS): 1,
        (Band.HOPELESS, Band.LEARNING): 1,
        (Band.LEARNING, Band.MASTERED): 1,
    }
    assert coverage.bands == {Band.UNSEEN: 3, Band.HOPELESS: 0, Band.LEARNING: 0, Band.MASTERED: 1}


def test_coverage_counts_prompts_and_not_draws():
    memory = PromptMemory()
    first, second = scored_of([1, 0], id="a"), scored_of([0, 0], id="b")
    for step in range(3):
        memory.observe(first, step)
    memory.observe(second, 3)
    memory.observe(scored_of([None], id="c"), 3)
    memory.observe_trained([first, first])
    coverage = memory.coverage(prompts=10)
    assert (coverage.prompts, coverage.drawn, coverage.trained) == (10, 3, 1)
    assert coverage.pass_rate == 0.25
    assert coverage.bands[Band.UNSEEN] == 8
    assert PromptMemory().coverage(prompts=10).pass_rate is None


def test_a_restored_memory_is_the_same():
    memory = PromptMemory(MemoryConfig(mastered_rest=3))
    memory.observe(scored_of([1, 1], id="a"), 1)
    memory.observe(scored_of([1, 1 / 3, None], id="b"), 2)
    memory.observe_trained([scored_of([1, 0], id="b")])
    resumed = PromptMemory(MemoryConfig(mastered_rest=3))
    resumed.restore(json.loads(json.dumps(memory.state())))
    assert resumed.state() == memory.state()
    assert resumed.coverage(5) == memory.coverage(5)
    assert not resumed.wants(prompt_of("a"), 4)
    assert resumed.wants(prompt_of("a"), 5)


@pytest.mark.parametrize(
    "bad",
    [{"window": 0}, {"mastered_rest": -1}, {"hopeless_at": 0.5, "mastered_at": 0.5}, {"mastered_at": 1.5}],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(SettingError, match=r"data\.memory"):
        MemoryConfig(**bad)
