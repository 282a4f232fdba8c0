"""Collecting over several steps: what is carried, what rests, and that every group has one fate."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collecting import GROUP, Bench, mixed, names
from trimtab.data.memory import MemoryConfig
from trimtab.data.selection import Reason, Selection
from trimtab.loop.collect import Collected
from trimtab.metrics import read
from trimtab.probes import selection_metrics

# ------------------------------------------------------------------------------ surplus and staleness


def test_surplus_is_carried_with_its_version_and_trained_first():
    bench = Bench(mixed(40), wanted=4)
    bench.state.counters.keep_rate = 0.5
    bench.engine.version = 7
    first = bench.step(Selection())
    waiting = names(first.surplus)
    assert (len(first.kept), len(waiting), first.fresh_kept) == (4, 4, 8)
    assert bench.state.carried == first.surplus
    assert not any(judged.scored in first.surplus for judged in first.judged), "its fate is still open"
    second = bench.step(Selection())
    assert names(second.kept) == waiting
    assert second.draws == 0
    assert second.fresh == []
    assert {r.version for scored in second.kept for r in scored.group.rollouts} == {7}
    assert [(judged.carried_in, judged.verdict.reason) for judged in second.judged] == [
        (True, Reason.KEPT)
    ] * 4
    flow = read(metrics_of(second, bench, version=8)).values
    assert (flow["staleness/max"], flow["flow/groups_carried_in"], flow["flow/draws"]) == (1, 4, 0)
    assert "flow/keep_rate" not in flow, "nothing was drawn, so there is no share"
    assert bench.state.counters.keep_rate == 0.75, "and none is remembered"


def metrics_of(found: Collected, bench: Bench, version: int) -> Any:
    return selection_metrics(
        wanted=bench.wanted.groups,
        rounds=found.rounds,
        fresh=found.fresh,
        fresh_kept=found.fresh_kept,
        trained=found.kept,
        carried_in=sum(judged.carried_in and judged.verdict.keep for judged in found.judged),
        carried_out=len(found.surplus),
        dropped={},
        version=version,
    )


def test_a_carried_group_that_is_too_old_is_dropped_and_replaced():
    bench = Bench(mixed(40), wanted=4)
    bench.state.counters.keep_rate = 0.5
    old = names(bench.step(Selection()).surplus)
    bench.engine.version += 1  # two versions after it was sampled
    found = bench.step(Selection(max_staleness=1))
    stale = [judged for judged in found.judged if judged.verdict.reason is Reason.STALE]
    assert [judged.scored.group.prompt.id for judged in stale] == old
    assert all(judged.carried_in and not judged.verdict.keep for judged in stale)
    assert len(found.kept) == 4
    assert set(names(found.kept)).isdisjoint(old)


def test_a_carried_group_may_wait_longer_where_the_bound_allows_and_nothing_was_updated():
    bench = Bench(mixed(60), wanted=2)
    bench.state.counters.keep_rate = 0.25
    waiting = names(bench.step(Selection()).surplus)
    assert len(waiting) == 6
    for _ in range(3):
        bench.engine.version -= 1  # the steps between made no update
        found = bench.step(Selection(max_staleness=0))
        assert names(found.kept) == waiting[:2]
        waiting = waiting[2:]
    assert bench.state.carried == []


def test_without_carrying_surplus_is_dropped_as_surplus():
    bench = Bench(mixed(40), wanted=4)
    bench.state.counters.keep_rate = 0.5
    found = bench.step(Selection(carry=False))
    assert (len(found.kept), found.surplus, found.count(Reason.SURPLUS)) == (4, [], 4)
    assert bench.state.carried == []


# ------------------------------------------------------------------------------ memory


def test_hopeless_and_mastered_prompts_rest_and_come_back_on_time():
    bench = Bench(
        {"hard": "0000", "easy": "1111", "good": "1000"},
        wanted=3,
        memory=MemoryConfig(hopeless_rest=2, mastered_rest=1, window=1),
    )
    drawn = [set(names(bench.step(Selection(max_draws=3)).fresh)) for _ in range(5)]
    assert drawn[0] == {"hard", "easy", "good"}
    assert drawn[1] == {"good"}
    assert drawn[2] == {"easy", "good"}, "mastered rests one step"
    assert drawn[3] == {"hard", "good"}, "hopeless rests two"
    assert drawn[4] == {"easy", "good"}


def test_where_every_prompt_rests_nothing_is_drawn_and_nothing_hangs():
    bench = Bench({"a": "0000", "b": "0000"}, wanted=2, memory=MemoryConfig(hopeless_rest=9))
    assert bench.step(Selection()).draws == 2, "they rest from their first group on, within the step too"
    later = bench.step(Selection())
    assert (later.draws, later.rounds, later.kept, later.fresh) == (0, 0, [], [])


def test_memory_sees_every_group_before_selection():
    bench = Bench({"a": "0000", "b": "1110", "c": "!!!!"}, wanted=3)
    bench.step(Selection(max_draws=3))
    rates = {p.id: bench.state.memory.pass_rate(p) for p in bench.state.cursor.prompts}
    assert rates == {"a": 0.0, "b": 0.75, "c": None}
    coverage = bench.state.memory.coverage(3)
    assert (coverage.drawn, coverage.trained) == (3, 0)


# ------------------------------------------------------------------------------ order, bounds, fates


@pytest.mark.parametrize("selection", [None, Selection()])
def test_groups_come_in_the_order_of_their_draws_whatever_finishes_first(selection: Selection | None):
    script = {f"p{i}": [("1" if i % 3 else "0") + "0" * ((7 * i) % 11), "0", "0", "0"] for i in range(30)}
    one, other = (Bench(script, wanted=6, order=order) for order in (1, -1))
    for _ in range(4):
        a, b = one.step(selection), other.step(selection)
        assert [s.group.key for s in a.fresh] == [s.group.key for s in b.fresh]
        assert [s.group.key for s in a.kept] == [s.group.key for s in b.kept]
        assert [s.group.key for s in a.surplus] == [s.group.key for s in b.surplus]
    assert one.state.cursor.state() == other.state.cursor.state()
    assert one.state.memory.state() == other.state.memory.state()


def test_the_same_prompt_may_be_drawn_twice_in_a_step():
    found = Bench({"a": "1000"}, wanted=3).step(Selection())
    assert [scored.group.key for scored in found.kept] == ["a#0", "a#1", "a#2"]
    seeds = {rollout.seed for scored in found.kept for rollout in scored.group.rollouts}
    assert len(seeds) == 12, "each draw has random numbers of its own"


answers = st.text(alphabet="01-!", min_size=GROUP, max_size=GROUP)
scripts = st.dictionaries(st.sampled_from([f"p{i}" for i in range(12)]), answers, min_size=1)
selections = st.none() | st.builds(
    Selection,
    max_draws_factor=st.sampled_from([1.0, 1.5, 4.0, float("inf")]),
    max_draws=st.none() | st.integers(1, 20),
    carry=st.booleans(),
    max_staleness=st.integers(0, 2),
)
rests = st.builds(MemoryConfig, hopeless_rest=st.integers(0, 3), mastered_rest=st.integers(0, 3))


@settings(max_examples=40, deadline=None)
@given(script=scripts, selection=selections, memory=rests, wanted=st.integers(1, 5))
def test_every_group_has_exactly_one_fate_and_draws_are_bounded(
    script: Mapping[str, str], selection: Selection | None, memory: MemoryConfig, wanted: int
):
    bench = Bench(script, wanted=wanted, memory=memory)
    limit = wanted if selection is None else selection.draw_limit(wanted, len(script))
    sampled: list[str] = []
    decided: list[str] = []
    for _ in range(4):
        found = bench.step(selection)
        assert found.draws == len(found.fresh) <= limit
        assert len(found.kept) <= wanted
        assert [j.scored for j in found.judged if j.verdict.keep] == found.kept
        assert all(len(scored.values) for scored in found.kept)
        sampled += [scored.group.key for scored in found.fresh]
        decided += [judged.scored.group.key for judged in found.judged]
    waiting = [scored.group.key for scored in bench.state.carried]
    assert sorted(decided + waiting) == sorted(sampled)
    assert len(set(sampled)) == len(sampled)
