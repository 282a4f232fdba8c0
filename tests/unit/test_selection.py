"""Selection: whole groups, raw grades, a reason for each, and a bound on what a step draws."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.handmade import grade_of, scored_of
from trimtab.data.selection import Reason, Selection, Verdict
from trimtab.errors import SettingError
from trimtab.rewards.shaping import RewardScale, SoftOverlong, reward_group
from trimtab.types import Grade, ScoredGroup


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1, 0, 0, 0], Reason.KEPT),
        ([0, 0, 0, 0], Reason.ALL_WRONG),
        ([1, 1, 1, 1], Reason.ALL_RIGHT),
        ([0.6] * 64, Reason.UNIFORM_PARTIAL),
        ([0.1 + 0.2, 0.3, 0.3], Reason.UNIFORM_PARTIAL),
        ([1.0, None, None, None], Reason.TOO_FEW_GRADED),
        ([None, None], Reason.UNGRADED),
        ([1, None, 0], Reason.KEPT),
        ([1, None, 1], Reason.ALL_RIGHT),
        ([0, *[0.35] * 7], Reason.KEPT),
    ],
)
def test_verdict_and_reason(values, reason):
    assert Selection().verdict(scored_of(values)) == Verdict(reason is Reason.KEPT, reason)


def test_case_1_four_prompts_one_useful_group():
    groups = [scored_of(v, id=str(i)) for i, v in enumerate(([0] * 4, [1] * 4, [1, 0, 0, 0], [0] * 4))]
    reasons = [Selection().verdict(group).reason for group in groups]
    assert reasons.count(Reason.ALL_WRONG) == 2
    assert reasons.count(Reason.ALL_RIGHT) == 1
    assert [group.group.prompt.id for group in groups if Selection().verdict(group).keep] == ["2"]


def test_case_2_a_length_penalty_does_not_make_a_wrong_group_useful():
    scored = scored_of([0, 0, 0, 0], lengths=[10, 80, 90, 100])
    shaped = reward_group(scored, RewardScale(1, -1), SoftOverlong(20), 100)
    assert np.ptp(shaped.rewards) == pytest.approx(1.0), "after shaping the rewards differ"
    assert Selection().verdict(scored) == (False, Reason.ALL_WRONG)


def test_one_grader_can_decide_where_several_are_summed():
    def graded(answer, form):
        return Grade.of(0.8 * answer + 0.2 * form, parts={"answer": answer, "format": form})

    group = scored_of([0, 0, 0]).group
    scored = ScoredGroup(group=group, grades=(graded(0, 1), graded(0, 0), grade_of(None)))
    assert Selection().verdict(scored).keep
    assert Selection(part="answer").verdict(scored) == (False, Reason.ALL_WRONG)
    assert Selection(part="format").verdict(scored).keep
    with pytest.raises(SettingError, match="did you mean 'answer'"):
        Selection(part="anser").verdict(scored)


def test_both_ends_of_the_band_are_kept():
    band = Selection(low=0.25, high=0.75)
    by_right = {n: band.verdict(scored_of([1] * n + [0] * (8 - n))).reason for n in range(9)}
    assert [n for n, reason in by_right.items() if reason is Reason.KEPT] == [2, 3, 4, 5, 6]
    assert by_right[1] is Reason.BELOW_BAND
    assert by_right[7] is Reason.ABOVE_BAND
    assert by_right[0] is Reason.ALL_WRONG
    assert by_right[8] is Reason.ALL_RIGHT


def test_a_bound_of_the_band_met_by_rounding_counts_as_met():
    assert Selection(low=0.3).verdict(scored_of([1] * 3 + [0] * 7)).keep
    assert Selection(high=0.1 + 0.2).verdict(scored_of([1] * 3 + [0] * 7)).keep


@pytest.mark.parametrize(("low", "high"), [(0.8, 0.2), (0.5, 0.5), (-0.1, 1), (0, 1.1), (math.nan, 1)])
def test_an_impossible_band_is_refused(low, high):
    with pytest.raises(SettingError, match="low < high"):
        Selection(low=low, high=high)


@pytest.mark.parametrize(
    "bad", [{"max_draws_factor": 0.5}, {"max_draws": 0}, {"max_staleness": -1}, {"max_empty_steps": 0}]
)
def test_impossible_bounds_are_refused(bad):
    with pytest.raises(SettingError, match=next(iter(bad))):
        Selection(**bad)


def test_case_5_every_step_has_a_finite_budget():
    assert Selection().draw_limit(8, pool=1000) == 32
    assert Selection(max_draws_factor=1.5).draw_limit(5, pool=1000) == 8
    assert Selection(max_draws=20).draw_limit(8, pool=1000) == 20
    assert Selection(max_draws=2).draw_limit(8, pool=1000) == 8, "never fewer than the step wants"
    assert Selection(max_draws_factor=math.inf).draw_limit(8, pool=1000) == 1000
    assert Selection(max_draws_factor=math.inf).draw_limit(8, pool=3) == 8


def test_a_carried_group_is_used_up_to_its_staleness():
    group = scored_of([1, 0], version=3).group
    assert Selection(max_staleness=1).usable(group, version=4)
    assert not Selection(max_staleness=1).usable(group, version=5)
    assert Selection(max_staleness=0).usable(group, version=3)
