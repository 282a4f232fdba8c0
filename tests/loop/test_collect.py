"""Collecting the groups of a step: scripted answers, and everything behind the engine as in a real run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.handmade import prompt_of
from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.grpo import grpo
from trimtab.data.cursor import PromptCursor
from trimtab.data.memory import MemoryConfig, PromptMemory
from trimtab.data.selection import Reason, Selection
from trimtab.loop import stages
from trimtab.loop.collect import Collected, Wanted, collect
from trimtab.loop.state import LoopState
from trimtab.metrics import read
from trimtab.objectives.aggregate import token_mean
from trimtab.probes import group_metrics, selection_metrics
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.rubric import Rubric
from trimtab.rewards.shaping import RewardScale, SoftOverlong, reward_groups
from trimtab.rollout.engine import Sampling
from trimtab.rollout.scripted import ScriptedEngine
from trimtab.types import Draw, Group, Prompt, Rollout

GROUP = 4


def first_character(prompt: Prompt, rollout: Rollout) -> float | None:
    """ "1..." is right, "0..." wrong, "-" cannot be graded, "!" breaks the grader."""
    del prompt
    if rollout.text.startswith("!"):
        raise ZeroDivisionError("told to fail")
    return None if rollout.text.startswith("-") else float(rollout.text[0])


class Watched(ScriptedEngine):
    """Remembers how many draws each call was asked for; yields in an order of its own choice."""

    def __init__(self, answers: Any, *, order: int = 1) -> None:
        super().__init__(answers)
        self.asked: list[int] = []
        self.order = order

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        self.asked.append(len(draws))
        groups = [group async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose)]
        for group in groups[:: self.order]:
            yield group


class Bench:
    """A loop's state and machines over scripted prompts: id -> one character an answer."""

    def __init__(
        self,
        script: Mapping[str, Sequence[str]],
        *,
        wanted: int,
        memory: MemoryConfig | None = None,
        order: int = 1,
        max_new_tokens: int = 100,
    ) -> None:
        self.engine = Watched(script, order=order)
        self.rubric = Rubric([(FunctionGrader(first_character), 1.0)], truncated="grade")
        prompts = [prompt_of(name) for name in script]
        self.state = LoopState(PromptCursor(prompts, 0), PromptMemory(memory))
        self.wanted = Wanted(wanted, GROUP, Sampling(max_new_tokens=max_new_tokens), seed=0)

    def step(self, selection: Selection | None = None) -> Collected:
        """Collect once; the next step has a new policy version, as after an update."""
        found = asyncio.run(collect(self.engine, self.rubric, self.state, selection, self.wanted))
        self.state.counters.step += 1
        self.engine.version += 1
        return found


def mixed(count: int) -> dict[str, str]:
    return {f"p{i}": "1000" for i in range(count)}


def algorithm(**changes: Any) -> Algorithm:
    return replace(grpo(), **changes)


def names(groups: Sequence[Any]) -> list[str]:
    return [scored.group.prompt.id for scored in groups]


# ---------------------------------------------------------------------------- published cases


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
