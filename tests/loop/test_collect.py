"""Collecting the groups of a step: published cases, groups that shrink, refills and their bound."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.collecting import GROUP, Bench, mixed, names
from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.grpo import grpo
from trimtab.data.selection import Reason, Selection
from trimtab.loop import stages
from trimtab.metrics import read
from trimtab.objectives.aggregate import token_mean
from trimtab.probes import group_metrics
from trimtab.rewards.shaping import RewardScale, SoftOverlong, reward_groups


def algorithm(**changes: Any) -> Algorithm:
    return replace(grpo(), **changes)


# ------------------------------------------------------------------------------ published cases


def test_case_1_an_exhausted_budget_trains_what_it_found():
    bench = Bench({"a": "0000", "b": "1111", "c": "1000", "d": "0000"}, wanted=2)
    found = bench.step(Selection(max_draws=4))
    assert names(found.kept) == ["c"]
    assert found.draws == 4
    assert (found.count(Reason.ALL_WRONG), found.count(Reason.ALL_RIGHT), found.count(Reason.KEPT)) == (
        2,
        1,
        1,
    )
    kinds = read(group_metrics(found.fresh, max_new_tokens=100)).values
    assert [kinds[f"groups/{kind}"] for kind in ("all_wrong", "all_right", "mixed")] == [0.5, 0.25, 0.25]
    batch = stages.pack_groups(reward_groups(found.kept, RewardScale(), None, 100), algorithm())
    weights_T = token_mean(batch)
    assert batch.num_sequences == GROUP
    assert float(weights_T.sum()) == pytest.approx(1.0)
    assert torch.allclose(weights_T, weights_T[0])


def test_case_2_selection_looks_at_grades_and_not_at_length_penalties():
    shaping = SoftOverlong(buffer=20, maximum=100)
    lengths = (10, 80, 90, 100)  # 0, 0, -0.5, -1; the end token counts
    bench = Bench({"a": ["0" * (length - 1) for length in lengths], **mixed(1)}, wanted=2)
    found = bench.step(Selection(max_draws=2))
    assert names(found.kept) == ["p0"]
    dropped = next(judged for judged in found.judged if not judged.verdict.keep)
    assert dropped.verdict.reason is Reason.ALL_WRONG
    shaped = reward_groups([dropped.scored], RewardScale(), shaping, 100)[0]
    assert shaped.rewards.tolist() == [0.0, 0.0, -0.5, -1.0], "on shaped rewards it would have been kept"


def test_case_5_a_hopeless_data_set_ends_within_the_pool_though_the_cap_is_unlimited():
    bench = Bench({f"p{i}": "0000" for i in range(37)}, wanted=2)
    found = bench.step(Selection(max_draws_factor=float("inf")))
    assert found.kept == []
    assert found.draws == 37 == found.count(Reason.ALL_WRONG)


def test_case_6_a_lone_graded_answer_has_no_advantage():
    bench = Bench({"a": "1!!!", "b": "1010"}, wanted=2)
    found = bench.step()
    batch = stages.pack_groups(stages.shape(found.kept, algorithm(), 100), algorithm())
    batch = stages.advantages(batch, algorithm(advantage=GroupRelative()))
    of_a = [s for s, key in enumerate(batch.keys_S) if key.startswith("a#")]
    assert len(of_a) == 1, "an ungraded answer never enters"
    advantages_S = [float(batch.advantages_T[batch.seq_T == s].abs().max()) for s in range(5)]
    assert advantages_S[of_a[0]] == 0.0
    assert sum(a > 0 for a in advantages_S) == GROUP
    assert float(token_mean(batch).sum()) == pytest.approx(1.0)


def test_case_6_under_selection_it_is_dropped_with_its_reason():
    found = Bench({"a": "1!!!"}, wanted=1).step(Selection(max_draws=1))
    assert [judged.verdict.reason for judged in found.judged] == [Reason.TOO_FEW_GRADED]


# ------------------------------------------------------------------------------ without selection


def test_without_selection_exactly_the_wanted_prompts_are_drawn_and_kept():
    found = Bench({"a": "0000", "b": "1111", "c": "1000"}, wanted=3).step()
    assert sorted(names(found.kept)) == ["a", "b", "c"]
    assert (found.draws, found.rounds) == (3, 1)
    assert found.count(Reason.UNSELECTED) == 3


def test_a_group_without_a_graded_answer_never_trains():
    found = Bench({"a": "!-!-", "b": "0000"}, wanted=2).step()
    assert names(found.kept) == ["b"]
    assert found.count(Reason.UNGRADED) == 1
    assert found.draws == 2, "and is not replaced"


def test_an_ungraded_answer_shrinks_its_group():
    found = Bench({"a": "1-00"}, wanted=1).step()
    group = stages.shape(found.kept, algorithm(), 100)[0]
    assert np.isnan(group.rewards).tolist() == [False, True, False, False]
    batch = stages.advantages(stages.pack_groups([group], algorithm()), algorithm(advantage=GroupRelative()))
    sizes = [float(batch.advantages_T[batch.seq_T == s][0]) for s in range(batch.num_sequences)]
    assert sizes == pytest.approx([2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5], abs=1e-5), "of three, not of four"


# ------------------------------------------------------------------------------ refills


def test_the_first_draw_is_what_is_missing_and_a_refill_follows_the_share_kept():
    script = {**{f"hard{i}": "0000" for i in range(60)}, **{f"good{i}": "1000" for i in range(4)}}
    bench = Bench(script, wanted=4)
    found = bench.step(Selection(max_draws_factor=float("inf")))
    assert bench.engine.asked[0] == 4
    kept, drawn = 0, 0
    for asked in bench.engine.asked:
        rate = 1.0 if not drawn else max(kept / drawn, 0.25)
        assert asked == min(int(np.ceil((4 - kept) / rate)), 64 - drawn)
        kept += sum(name.startswith("good") for name in names(found.fresh[drawn : drawn + asked]))
        drawn += asked
    assert drawn == found.draws
    assert kept == len(found.kept) == 4
    assert len(bench.engine.asked) > 2


def test_the_share_kept_lately_decides_the_next_steps_first_draw():
    script = {**{f"hard{i}": "0000" for i in range(50)}, **mixed(50)}
    bench = Bench(script, wanted=8)
    before = bench.step(Selection(max_draws_factor=8))
    share = before.fresh_kept / before.draws
    assert bench.state.counters.keep_rate == pytest.approx((1.0 + share) / 2)
    bench.state.carried = []
    bench.engine.asked.clear()
    rate = bench.state.counters.keep_rate
    bench.step(Selection(max_draws_factor=8))
    assert bench.engine.asked[0] == int(np.ceil(8 / rate)) > 8


def test_a_refill_never_passes_the_bound():
    bench = Bench({f"p{i}": "0000" for i in range(100)}, wanted=4)
    found = bench.step(Selection(max_draws_factor=2.5))
    assert bench.engine.asked == [4, 6]
    assert found.draws == 10
