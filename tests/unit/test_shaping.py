"""Shaping: eq. 13 of DAPO to the token, the hard penalty, and settings that make no sense."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from tests.handmade import scored_of
from trimtab.errors import SettingError
from trimtab.rewards.shaping import (
    Breakpoint,
    HardOverlong,
    RewardScale,
    SoftOverlong,
    reward_group,
    reward_groups,
)


def test_case_10_soft_overlong_by_length():
    lengths = [79, 80, 81, 90, 99, 100, 101]
    expected = [0, 0, -0.05, -0.5, -0.95, -1, -1]
    for shaping in (SoftOverlong(20, 100), SoftOverlong(20)):
        np.testing.assert_allclose(shaping.penalties(lengths, 100), expected, rtol=0, atol=1e-15)


def test_the_papers_numbers():
    breakpoints = SoftOverlong(4096, 20480).breakpoints(20480)
    assert breakpoints == ((16384, 0.0), (18432, -0.5), (20480, -1.0))


def test_breakpoints_lie_on_the_ramp():
    for buffer in (1, 2, 3, 20):
        shaping = SoftOverlong(buffer, 100)
        for length, penalty in shaping.breakpoints(100):
            assert float(shaping.penalties(length, 100)) == penalty


@pytest.mark.parametrize("buffer", [100, 120])
def test_case_10_a_buffer_as_long_as_the_maximum_is_refused_with_both_numbers(buffer):
    with pytest.raises(SettingError, match=rf"{buffer}.*100"):
        SoftOverlong(buffer, 100)
    with pytest.raises(SettingError, match=rf"{buffer}.*100"):
        SoftOverlong(buffer).breakpoints(100)


def test_impossible_penalties_are_refused():
    for make in (
        lambda: SoftOverlong(0),
        lambda: SoftOverlong(-5, 100),
        lambda: HardOverlong(0.0),
        lambda: HardOverlong(-1.0),
        lambda: HardOverlong(1.0, 0),
        lambda: RewardScale(0.0, 1.0),
        lambda: RewardScale(1.0, 1.0),
        lambda: RewardScale(float("nan"), 0.0),
    ):
        with pytest.raises(SettingError):
            make()


def test_a_penalty_that_no_answer_can_reach_is_refused():
    with pytest.raises(SettingError, match="max_new_tokens"):
        SoftOverlong(20, 200).penalties([100], 100)
    with pytest.raises(SettingError, match="max_new_tokens"):
        HardOverlong(1.0, 101).penalties([100], 100)


def test_hard_penalty_from_the_maximum_on():
    np.testing.assert_array_equal(HardOverlong(0.5).penalties([99, 100], 100), [0, -0.5])
    np.testing.assert_array_equal(HardOverlong(2.0, 80).penalties([79, 80, 100], 100), [0, -2, -2])
    assert HardOverlong(2.0, 80).breakpoints(100) == (
        Breakpoint(79, 0),
        Breakpoint(80, -2),
        Breakpoint(100, -2),
    )


def test_rewards_are_scaled_shaped_and_nan_where_not_graded():
    scored = scored_of([1.0, 0.0, 0.25, None], lengths=[10, 90, 100, 100])
    rewarded = reward_group(scored, RewardScale(1, -1), SoftOverlong(20), 100)
    np.testing.assert_array_equal(rewarded.rewards, [1.0, -1.5, -1.5, np.nan])
    np.testing.assert_array_equal(rewarded.shaping, [0.0, -0.5, -1.0, 0.0])
    assert rewarded.rewards.dtype == np.float64


def test_no_shaping_leaves_the_grades():
    groups = [scored_of([1, 0], id="a"), scored_of([0.6, None], id="b")]
    first, second = reward_groups(groups, RewardScale(), None, 100)
    np.testing.assert_array_equal(first.rewards, [1, 0])
    np.testing.assert_array_equal(second.rewards, [0.6, np.nan])
    np.testing.assert_array_equal(second.shaping, [0, 0])
