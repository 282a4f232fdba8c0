"""Probes of groups, rewards and flow against numbers worked out by hand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.scenes import rewarded, scored
from trimtab.metrics import Histogram, merge, read
from trimtab.probes import (
    group_metrics,
    memory_metrics,
    pool_metrics,
    reward_metrics,
    selection_metrics,
    time_metrics,
)
from trimtab.probes.groups import length_bins
from trimtab.types import Finish


def shown(metrics):
    found = read(metrics)
    assert found.missing == {}
    return found.values


def test_case_1_of_dynamic_sampling():
    """Correctness 0000, 1111, 1000, 0000: half all wrong, a quarter all right, a quarter useful."""
    groups = [scored(f"p{i}", v, [5] * 4) for i, v in enumerate([[0] * 4, [1] * 4, [1, 0, 0, 0], [0] * 4])]
    values = shown(group_metrics(groups, max_new_tokens=10))
    assert values["groups/all_wrong"] == 0.5
    assert values["groups/all_right"] == 0.25
    assert values["groups/mixed"] == 0.25
    assert values["groups/uniform"] == 0.75
    assert (values["groups/all_alike"], values["groups/too_few"]) == (0, 0)
    assert values["groups/outcome_std"] == pytest.approx(math.sqrt(3) / 4 / 4)
    assert values["pass/at_1"] == values["reward/outcome"] == pytest.approx(5 / 16)
    assert values["pass/at_group"] == 0.5


def test_constant_partial_values_are_alike_however_they_round():
    values = shown(group_metrics([scored("p", [0.6] * 64, [3] * 64)], max_new_tokens=10))
    assert values["groups/all_alike"] == 1
    assert values["groups/outcome_std"] == 0
    assert "reward/length_correlation" not in values
    assert "reward/length_correlation_within" not in values


def test_ungraded_answers_enter_no_outcome():
    """Three failed gradings and one right answer: effective size 1."""
    group = scored("p", [1, "failed", "timeout", "ungradable"], [1, 2, 3, 4])
    values = shown(group_metrics([group], max_new_tokens=10))
    assert values["groups/too_few"] == 1
    assert values["reward/outcome"] == 1
    assert values["grades/ungraded"] == 0.75
    for state in ("right", "not_gradable", "timeout", "grader_failed"):
        assert values[f"grades/{state}"] == 0.25
    assert values["grades/wrong"] == 0
    assert values["length/right"] == 1
    assert values["length/ungraded"] == 3
    assert "length/wrong" not in values
    assert "groups/outcome_std" not in values
    assert values["grades/part/answer"] == 1


def test_lengths():
    group = scored("p", [1, 0, 0.5, 0], [1, 4, 7, 8], cut=[3])
    values = shown(group_metrics([group], max_new_tokens=8, penalty_free=6))
    assert values["length/mean"] == 5
    assert values["length/std"] == pytest.approx(math.sqrt((16 + 1 + 4 + 9) / 4))
    assert (values["length/min"], values["length/max"]) == (1, 8)
    assert values["length/truncated"] == 0.25
    assert values["length/aborted"] == 0
    assert values["length/overlong"] == 0.5
    assert (values["length/right"], values["length/wrong"], values["length/partial"]) == (1, 6, 7)
    quantiles = {f"length/p{q}": x for q, x in ((10, 1), (50, 4), (90, 8), (99, 8))}
    assert {key: values[key] for key in quantiles} == quantiles
    assert "length/overlong" not in shown(group_metrics([group], max_new_tokens=8))


def test_an_answer_that_ends_exactly_at_the_limit_is_not_truncated_and_an_aborted_one_is_told_apart():
    group = scored("p", [1, 0], [8, 3])
    cut = dataclasses.replace(group.group.rollouts[1], finish=Finish.ABORT)
    group = dataclasses.replace(
        group, group=dataclasses.replace(group.group, rollouts=(group.group.rollouts[0], cut))
    )
    values = shown(group_metrics([group], max_new_tokens=8))
    assert values["length/truncated"] == 0
    assert values["length/aborted"] == 0.5


def test_length_bins_are_exact_up_to_255_tokens_and_never_more_than_256():
    for limit in (1, 64, 255, 256, 1000, 16384):
        bins = length_bins(limit)
        assert bins.size <= 256
        width = bins.edges[1] - bins.edges[0]
        assert (width == 1) == (limit <= 255)
        for length in (0, 1, limit // 2, limit):
            found = Histogram.of([float(length)] * 3, bins)
            assert (found.below, found.above) == (0, 0)
            assert found.quantile(0.5) == length


def test_pass_rate_by_length():
    group = scored("p", [1, 0, 1, 1, 0, "failed"], [1, 33, 64, 65, 128, 64])
    values = shown(group_metrics([group], max_new_tokens=200))
    buckets = {key: value for key, value in values.items() if key.startswith("pass/length_")}
    assert buckets == {"pass/length_1": 1, "pass/length_64": 0.5, "pass/length_128": 0.5}


def test_reward_and_length_within_groups_and_overall_may_disagree():
    """Inside each group the longer answer is right; over all, long ones belong to the hard prompt."""
    easy, hard = scored("a", [0, 1, 1], [1, 2, 3]), scored("b", [0, 0, 1], [18, 19, 20])
    values = shown(group_metrics([easy, hard], max_new_tokens=30))
    x = np.array([0, 1, 1, 0, 0, 1.0])
    y = np.array([1, 2, 3, 18, 19, 20.0])
    assert values["reward/length_correlation"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert values["reward/length_correlation"] < 0
    x = np.array([-2, 1, 1, -1, -1, 2]) / 3
    y = np.array([-1, 0, 1, -1, 0, 1.0])
    assert values["reward/length_correlation_within"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert values["reward/length_correlation_within"] > 0.8


def test_uniform_groups_leave_the_correlation_within_groups_alone():
    """Deviations of eight times 0.7 are rounding noise, and correlation would blow it up."""
    mixed, noise = scored("a", [0, 1], [1, 2]), scored("b", [0.7] * 8, range(1, 9))
    alone = shown(group_metrics([mixed], max_new_tokens=10))["reward/length_correlation_within"]
    both = shown(group_metrics([mixed, noise], max_new_tokens=10))["reward/length_correlation_within"]
    assert alone == both == pytest.approx(1.0)


def test_duplicates_are_of_tokens_within_a_group():
    group = scored("p", [1, 1, 0, 0], [2, 2, 2, 3])
    first = group.group.rollouts[0]
    twins = (first, dataclasses.replace(group.group.rollouts[1], token_ids=first.token_ids.copy()))
    rollouts = (*twins, *group.group.rollouts[2:])
    again = dataclasses.replace(group, group=dataclasses.replace(group.group, rollouts=rollouts))
    assert shown(group_metrics([again], max_new_tokens=9))["groups/duplicates"] == 0.25
    assert shown(group_metrics([group, group], max_new_tokens=9))["groups/duplicates"] == 0


def test_parts_of_a_step_merge_to_the_whole():
    groups = [
        scored("a", [1, 0, 0.5], [3, 9, 4], cut=[1]),
        scored("b", [1, 1], [2, 2]),
        scored("c", ["failed", 0, 1], [5, 6, 40]),
    ]
    whole = shown(group_metrics(groups, max_new_tokens=40))
    parts = [group_metrics([group], max_new_tokens=40) for group in groups]
    assert shown(merge(parts)) == pytest.approx(whole)


def test_no_group_no_metric():
    assert group_metrics([], max_new_tokens=9) == {}
    assert reward_metrics([]) == {}


def test_rewards_of_the_trained_groups():
    a = rewarded(scored("a", [1, 0], [2, 3]), [0.0, -0.5])
    b = rewarded(scored("b", [1, "failed", 0], [2, 3, 4]))
    values = shown(reward_metrics([a, b], penalty_free=2))
    joined = np.array([1, -1.5, 1, -1])
    assert values["reward/outcome_trained"] == 0.5
    assert values["reward/mean"] == pytest.approx(joined.mean())
    assert values["reward/std"] == pytest.approx(joined.std())
    assert values["groups/reward_std"] == pytest.approx((1.25 + 1) / 2)
    assert values["reward/shaping"] == pytest.approx(-0.125)
    assert values["reward/shaping_share"] == 0.25
    assert not any("shaping" in key for key in reward_metrics([a, b]))


def test_flow_counts_everything_apart():
    fresh = [scored("a", [1, 0], [2, 4]), scored("b", [1, 1], [1, 1]), scored("c", [1, 0], [3, 3])]
    carried = scored("z", [1, 1, 0], [9, 9, 9], version=4)
    values = shown(
        selection_metrics(
            wanted=4,
            rounds=2,
            fresh=fresh,
            fresh_kept=2,
            trained=[carried, fresh[0]],
            carried_in=1,
            carried_out=1,
            dropped={"all-right": 1, "stale": 2, "below-band": 0},
            version=5,
        )
    )
    assert values == pytest.approx(
        {
            "flow/draws": 3,
            "flow/rounds": 2,
            "flow/rollouts": 6,
            "flow/tokens_sampled": 14,
            "flow/tokens_trained": 33,
            "flow/groups_kept": 2,
            "flow/groups_trained": 2,
            "flow/groups_carried_in": 1,
            "flow/groups_carried_out": 1,
            "flow/groups_wasted": 2,
            "flow/dropped/all-right": 1,
            "flow/dropped/stale": 2,
            "flow/keep_rate": 2 / 3,
            "flow/fill": 0.5,
            "flow/pass_shift": 3 / 5 - 4 / 6,
            "flow/length_shift": 33 / 5 - 14 / 6,
            "staleness/mean": (3 * 1 + 2 * 5) / 5,
            "staleness/max": 5,
        }
    )


def test_an_empty_step_has_counts_and_nothing_it_did_not_see():
    values = shown(
        selection_metrics(
            wanted=4,
            rounds=3,
            fresh=[],
            fresh_kept=0,
            trained=[],
            carried_in=0,
            carried_out=0,
            dropped={},
            version=1,
        )
    )
    assert values["flow/fill"] == 0
    assert not {"flow/keep_rate", "flow/pass_shift", "staleness/mean", "staleness/max"} & values.keys()


def test_pool():
    values = shown(
        pool_metrics(
            prompts=10,
            drawn=6,
            trained=4,
            bands={"unseen": 4, "hopeless": 1, "learning": 3, "mastered": 2},
            moves={("unseen", "mastered"): 9, ("hopeless", "learning"): 2, ("mastered", "hopeless"): 1},
            pass_rate=0.6,
            drawn_lately=5,
            trained_lately=2,
            trained_pass_rate=0.5,
        )
    )
    assert values == pytest.approx(
        {
            "pool/drawn": 0.6,
            "pool/trained": 0.4,
            "pool/hopeless": 0.1,
            "pool/learning": 0.3,
            "pool/mastered": 0.2,
            "pool/moves_easier": 2,
            "pool/moves_harder": 1,
            "pool/pass_rate": 0.6,
            "pool/drawn_lately": 0.5,
            "pool/trained_lately": 0.2,
            "pool/pass_shift": -0.1,
        }
    )


def test_time_and_memory():
    values = shown(time_metrics({"sample": 3.0, "grade": 0.5}, step=5.0, tokens={"sample": 600}))
    assert values == {
        "seconds/sample": 3.0,
        "seconds/grade": 0.5,
        "seconds/step": 5.0,
        "seconds/rewards_share": 0.1,
        "tokens_per_second/sample": 200.0,
    }
    assert "tokens_per_second/update" not in shown(time_metrics({}, step=1.0, tokens={"update": 5}))
    assert shown(memory_metrics(resident=5, peak=9)) == {"memory/resident_bytes": 5, "memory/peak_bytes": 9}
