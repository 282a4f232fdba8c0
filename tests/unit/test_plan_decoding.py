"""The batching of the planner: against a loop over single ticks, and cases with a known answer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.planning.decoding import Dealing, DecodeCost, sample_round

COST = DecodeCost(
    fixed=1.0,
    per_row=0.3,
    per_pair=0.01,
    dense_read=2.0,
    expert_read=3.0,
    routed=0.25,
    per_context=0.015,
    prefill=0.1,
)
ALL_AT_ONCE = Dealing(size=1, at_once=1000)


def one_engine(lengths: list[int], prompt: int, slots: int, cost: DecodeCost) -> tuple[float, list[float]]:
    """The same batching, one tick after the other; every answer is a group of its own."""
    waiting, running, ends = list(range(len(lengths))), dict[int, int](), [0.0] * len(lengths)
    now = 0.0
    while waiting or running:
        while waiting and len(running) < slots:
            answer = waiting.pop(0)
            now += prompt * cost.prefill
            running[answer] = 1
            if lengths[answer] == 1:
                ends[answer] = now
                del running[answer]
        if not running:
            continue
        context = sum(prompt + age - 1 for age in running.values())
        rows = len(running)
        read = cost.dense_read + cost.expert_read * (1 - (1 - cost.routed) ** rows)
        now += cost.fixed + max(
            cost.per_row * rows + cost.per_pair * context, read + cost.per_context * context
        )
        for answer in list(running):
            running[answer] += 1
            if running[answer] == lengths[answer]:
                ends[answer] = now
                del running[answer]
    return now, ends


@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=25),
    st.integers(1, 40),
    st.integers(1, 9),
    st.sampled_from([COST, DecodeCost(fixed=1.0), DecodeCost(per_row=1.0, per_pair=0.2, dense_read=4.0)]),
)
@settings(max_examples=80, deadline=None)
def test_closed_form_equals_a_loop_over_ticks(lengths: list[int], prompt: int, slots: int, cost: DecodeCost):
    got = sample_round(np.array(lengths)[:, None], prompt, ALL_AT_ONCE, 1, slots, cost)
    seconds, ends = one_engine(lengths, prompt, slots, cost)
    assert got.seconds == pytest.approx(seconds, rel=1e-9)
    np.testing.assert_allclose(got.ends_A, ends, rtol=1e-9)


def test_equal_lengths_on_one_engine():
    cost = DecodeCost(fixed=0.5, per_row=0.1, prefill=0.01)
    got = sample_round(np.full((3, 4), 11), 20, ALL_AT_ONCE, 1, 100, cost)
    assert got.seconds == pytest.approx(3 * 20 * 0.01 + 10 * (0.5 + 12 * 0.1))
    assert got.ticks_E[0] == 10
    assert got.row_ticks_E[0] == 120


def test_a_prompt_is_computed_once_for_a_group():
    cost = DecodeCost(prefill=1.0)
    got = sample_round(np.full((2, 8), 5), 7, ALL_AT_ONCE, 1, 100, cost)
    assert got.seconds == pytest.approx(14.0)


def test_with_slots_for_all_the_longest_answer_decides_the_ticks():
    lengths = np.array([[3, 50, 7], [9, 2, 31]])
    got = sample_round(lengths, 1, ALL_AT_ONCE, 1, 10**6, DecodeCost(fixed=1.0))
    assert got.seconds == 49.0
    np.testing.assert_array_equal(got.ends_A, lengths.reshape(-1) - 1)


def test_one_slot_does_one_after_the_other():
    got = sample_round(np.array([[4], [6], [2]]), 0, ALL_AT_ONCE, 1, 1, DecodeCost(fixed=1.0))
    np.testing.assert_array_equal(got.ends_A, [3, 8, 9])


def test_local_engines_drain_a_deal_before_the_next():
    lengths = np.array([[10], [20], [5], [5]])
    dealing = Dealing.of("local", 4, 1, 1, 256)
    assert dealing == Dealing(2)
    got = sample_round(lengths, 0, dealing, 1, 256, DecodeCost(fixed=1.0))
    np.testing.assert_array_equal(got.ends_A, [9, 19, 23, 23])


def test_who_is_free_takes_the_next_deal():
    engine_G, tick_G = Dealing(size=1).dealt(np.array([[11], [31], [11], [11], [11]]), 2)
    np.testing.assert_array_equal(engine_G, [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(tick_G, [0, 0, 10, 20, 30])


def test_vllm_is_given_three_quarters_of_its_share_at_once_within_its_slots():
    assert Dealing.of("vllm", 64, 4, 4, 256) == Dealing(1, 12)
    assert Dealing.of("vllm", 64, 4, 4, 8) == Dealing(1, 2)
    assert Dealing.of("vllm", 64, 4, 0, 8) == Dealing(64)


def test_more_engines_than_groups_leave_some_with_nothing():
    got = sample_round(np.full((2, 2), 5), 1, Dealing(1), 5, 10, DecodeCost(fixed=1.0))
    np.testing.assert_array_equal(got.seconds_E, [4, 4, 0, 0, 0])


def test_a_tick_is_the_larger_of_computing_and_reading():
    cost = DecodeCost(fixed=1.0, per_row=1.0, dense_read=10.0)
    assert cost.tick(4, 100) == 11.0
    assert cost.tick(40, 100) == 41.0


def test_few_tokens_touch_few_experts():
    cost = DecodeCost(expert_read=1.0, routed=0.125)
    assert cost.tick(1, 0) == pytest.approx(0.125)
    assert cost.tick(400, 0) == pytest.approx(1.0)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_more_slots_never_take_more_ticks_and_longer_answers_never_less_time(
    seed: int, slots: int, more: int
):
    lengths = np.random.default_rng(seed).integers(1, 60, (40, 1))
    ticks = DecodeCost(fixed=1.0)
    few = sample_round(lengths, 0, ALL_AT_ONCE, 1, 1, ticks)
    many = sample_round(lengths, 0, ALL_AT_ONCE, 1, 40 + more, ticks)
    assert many.seconds <= sample_round(lengths, 0, ALL_AT_ONCE, 1, slots, ticks).seconds <= few.seconds
    longer = sample_round(lengths + more, 0, ALL_AT_ONCE, 1, 40 + more, COST)
    assert longer.seconds >= sample_round(lengths, 0, ALL_AT_ONCE, 1, 40 + more, COST).seconds
