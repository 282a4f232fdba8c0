"""The simulated loop: cases whose step time can be written down, and what may never get worse."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import SettingError
from trimtab.planning.costs import Costs, StageCost
from trimtab.planning.decoding import DecodeCost
from trimtab.planning.lengths import LogNormal, Recorded
from trimtab.planning.simulation import Setup, Simulated, simulate, train_seconds
from trimtab.planning.timeline import Cores, Timeline, Work
from trimtab.planning.workload import Split, Workload

EQUAL = LogNormal(average=11, sd=0, limit=100)
WORK = Workload(groups=8, answers=4, prompt=0, updates=2)
COSTS = Costs(decode=DecodeCost(fixed=1.0), update=StageCost(fixed=3.0), sync=0.5, rest=StageCost(fixed=0.25))


def run(split: Split, costs: Costs = COSTS, **changes: object) -> Simulated:
    base = Setup(workload=WORK, lengths=EQUAL, split=split, costs=costs, steps=12)
    return simulate(dataclasses.replace(base, **changes))


def test_one_process_does_all_in_turn():
    got = run(Split(engines=0))
    assert (got.sample, got.update, got.sync, got.rest) == (10.0, 6.0, 0.5, 0.25)
    assert got.step == pytest.approx(16.75)


def test_two_local_deals_take_twice_the_ticks_of_one():
    assert run(Split(engines=1, engine="local")).sample == 20.0
    assert run(Split(engines=2, engine="local")).sample == 20.0
    assert run(Split(engines=1, engine="vllm")).sample == 20.0  # a quarter waits for the first to end


def test_the_synchronous_step_is_the_sum_and_both_sides_wait_for_each_other():
    got = run(Split(engines=1, engine="local"))
    assert got.step == pytest.approx(20 + 6 + 0.5 + 0.25)
    assert got.engines_idle == pytest.approx(1 - 20 / 26.75)
    assert got.trainers_idle == pytest.approx(1 - 6 / 26.75)
    assert got.staleness == 0.0


@pytest.mark.parametrize("update", [1.0, 9.0, 30.0])
def test_drained_one_step_ahead_the_longer_side_decides(update: float):
    costs = dataclasses.replace(COSTS, update=StageCost(fixed=update))
    got = run(Split(engines=1, staleness=1, engine="local"), costs)
    assert got.step == pytest.approx(max(20.0, 2 * update) + 0.5 + 0.25)
    assert got.staleness == 1.0


def test_far_ahead_with_weights_swapped_in_flight_sampling_is_hidden():
    costs = dataclasses.replace(COSTS, update=StageCost(fixed=30.0))
    got = run(Split(engines=1, staleness=8, in_flight="update", engine="local"), costs)
    assert got.step == pytest.approx(60 + 0.5 + 0.25)
    assert got.trainers_idle == pytest.approx(1 - 60 / 60.75)


def test_drained_weights_are_delivered_every_s_steps():
    costs = dataclasses.replace(COSTS, update=StageCost(fixed=30.0))
    got = run(Split(engines=1, staleness=3, engine="local"), costs)
    assert got.sync == pytest.approx(0.5 / 3)
    assert got.step == pytest.approx(60 + 0.5 / 3 + 0.25)
    assert 1.0 <= got.staleness <= 3.0


def test_no_step_is_trained_on_older_answers_than_the_bound():
    for in_flight in ("drain", "update"):
        for staleness in (1, 2, 5):
            got = run(Split(engines=2, staleness=staleness, in_flight=in_flight, engine="local"))
            assert 0.0 < got.staleness <= staleness


def test_dynamic_sampling_refills_by_the_rule_of_the_loop():
    kept = np.tile([True, False], 50)
    lengths = Recorded(groups=[np.full(4, 11)] * 100, kept=kept, how="made up")
    work = dataclasses.replace(WORK, draw_factor=4.0, groups=32)
    got = simulate(Setup(workload=work, lengths=lengths, split=Split(engines=0), costs=COSTS, steps=100))
    assert got.draws == pytest.approx(64, rel=0.06)
    assert 1.0 < got.rounds < 3.0
    none = dataclasses.replace(lengths, kept=np.zeros(100, dtype=bool))
    got = simulate(Setup(workload=work, lengths=none, split=Split(engines=0), costs=COSTS, steps=3))
    assert got.draws == 128
    assert got.update == 0.0


def test_grading_overlaps_sampling_but_for_its_tail():
    costs = dataclasses.replace(COSTS, grade=0.1)
    assert run(Split(engines=0), costs).grade == pytest.approx(3.2)
    spread = Recorded(groups=[np.full(4, n) for n in (10, 300)], kept=np.ones(2, dtype=bool), how="made up")
    got = run(Split(engines=1, engine="local"), costs, lengths=spread)
    assert 0.1 <= got.grade < 3.2
    many = run(Split(engines=1, engine="local"), dataclasses.replace(costs, graders=32))
    assert many.grade == pytest.approx(0.1)


def test_shared_cores_slow_everybody():
    cores = Cores(count=2, threads=1)
    split = Split(engines=2, staleness=1, engine="local")
    free, shared = run(split), run(split, cores=cores)
    assert free.step == pytest.approx(20.75)
    assert shared.step == pytest.approx(
        20.75 + 3.0, rel=0.02
    )  # 46 seconds of work on two cores, 23 of them each
    slow = run(split, cores=Cores(count=2, threads=1, slowdown=1.5))
    assert slow.step > 1.3 * shared.step


def test_speeds_on_shared_cores():
    cores = Cores(count=2, threads=1, slowdown=1.25)
    assert [cores.speed(works) for works in (0, 1, 2, 4)] == pytest.approx([1.0, 1.0, 0.8, 0.4])
    assert Cores(count=2, threads=2, slowdown=1.25).speed(2) == pytest.approx(0.5)
    assert Cores().speed(1000) == 1.0


def test_processes_that_wait_for_each_other_are_told():
    def stuck():
        yield [Work("a", 1.0)]
        yield lambda: False

    with pytest.raises(RuntimeError, match="waits for another"):
        Timeline(Cores()).run(stuck())


def test_answers_are_dealt_evenly_over_trainers():
    kept = [np.array([100, 1, 1, 100])]
    costs = Costs(decode=DecodeCost(), update=StageCost(per_token=1.0))
    work = Workload(groups=1, answers=4, prompt=0)
    assert train_seconds(kept, work, Split(engines=1), costs) == (0.0, 202.0, 1.0)
    assert train_seconds(kept, work, Split(engines=1, trainers=2), costs) == (0.0, 101.0, 1.0)
    assert train_seconds(kept, work, Split(engines=1, trainers=4), costs)[1] == 100.0


def test_what_travels_between_trainers_hides_behind_computing_or_the_other_way():
    cost = StageCost(per_token=1.0, per_micro_batch=30.0, micro_batch=10)
    assert cost.seconds(20) == 60.0
    assert dataclasses.replace(cost, per_micro_batch=5.0).seconds(20) == 20.0
    assert cost.seconds(0) == 0.0


def test_the_same_seed_gives_the_same_numbers():
    lengths = LogNormal(average=50, sd=40, limit=200, keep_rate=0.5)
    work = dataclasses.replace(WORK, draw_factor=4.0)
    setup = Setup(workload=work, lengths=lengths, split=Split(engines=3, staleness=1), costs=COSTS, seed=5)
    assert simulate(setup) == simulate(setup)
    assert simulate(setup) != simulate(dataclasses.replace(setup, seed=6))


@given(
    engines=st.integers(1, 6),
    staleness=st.integers(0, 3),
    seed=st.integers(0, 1000),
    tick=st.floats(0.01, 1.0),
)
@settings(max_examples=25, deadline=None)
def test_dearer_parts_and_shared_cores_never_make_a_step_shorter(
    engines: int, staleness: int, seed: int, tick: float
):
    lengths = LogNormal(average=40, sd=30, limit=120)
    costs = Costs(decode=DecodeCost(fixed=tick), update=StageCost(per_token=1e-3), sync=0.1)
    split = Split(engines=engines, staleness=staleness)
    setup = Setup(workload=WORK, lengths=lengths, split=split, costs=costs, steps=6, seed=seed)
    base = simulate(setup).step
    for dearer in (
        dataclasses.replace(costs, decode=DecodeCost(fixed=2 * tick)),
        dataclasses.replace(costs, update=StageCost(per_token=2e-3)),
        dataclasses.replace(costs, sync=1.0),
    ):
        assert (
            simulate(dataclasses.replace(setup, costs=dearer)).step >= 0.99 * base
        )  # means over a window that moves
    assert simulate(dataclasses.replace(setup, cores=Cores(count=2))).step >= 0.99 * base


@given(seed=st.integers(0, 1000), engines=st.integers(1, 5))
@settings(max_examples=12, deadline=None)
def test_shares_are_shares_and_staleness_pays_no_more_than_the_sum(seed: int, engines: int):
    lengths = LogNormal(average=40, sd=30, limit=120)
    sync = run(Split(engines=engines), lengths=lengths, seed=seed, steps=60)
    ahead = run(Split(engines=engines, staleness=1), lengths=lengths, seed=seed, steps=60)
    for got in (sync, ahead):
        assert 0.0 <= got.engines_idle <= 1.0
        assert 0.0 <= got.trainers_idle <= 1.0
        assert 0.0 <= got.tail <= 1.0
    assert ahead.step <= 1.02 * sync.step  # means over windows that differ by one step


def test_splits_that_cannot_be_are_refused():
    with pytest.raises(SettingError, match="one process cannot sample while it trains"):
        Split(engines=0, staleness=1)
    with pytest.raises(SettingError, match="trainers >= 1"):
        Split(engines=1, trainers=0)
