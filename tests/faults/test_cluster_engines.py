"""Engines of a pool die, hang, lie and dawdle in the middle of a request, and its answers are what they were.

Bit for bit, tokens and log-probabilities.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clusters import FaultySpec, SilentRecord, cluster_run
from tests.contract import test_engines as contract
from tests.contract.test_engines import by_key, draws_of, sample
from tests.tiny import tiny_model
from tests.tiny_runs import model_folder
from trimtab.config import Run
from trimtab.errors import RunError, WorkerLostError
from trimtab.rollout.local import LocalEngine
from trimtab.types import Group

pytestmark = pytest.mark.ray

VERSION = 5


class Site:
    """A pool of two engines with faults on demand, and what was told of them."""

    def __init__(self, run: Run, marks: Path) -> None:
        from trimtab.distributed.assembly import Assembly

        self.model = tiny_model()
        self.assembly = Assembly(run, engine_spec=FaultySpec(run, "cpu", folder=str(marks)))
        self.record = SilentRecord()
        self.pool: Any = asyncio.run(self.assembly.start_pool(self.model, trainer_of(self.model)))
        self.load(VERSION)

    def load(self, version: int) -> None:
        asyncio.run(self.pool.load_weights(list(self.model.module.named_parameters()), version))

    def ready(self) -> None:
        """Both engines serve; one that died unseen is noticed at the weights, and started anew."""
        ends = time.monotonic() + 120
        self.load(VERSION)
        while len(self.pool.crew.serving) < 2:
            assert time.monotonic() < ends, "an engine did not come back"
            time.sleep(0.1)
            if asyncio.run(self.pool.crew.returned()):
                self.load(VERSION)

    @contextlib.contextmanager
    def limits(self, **changes: float) -> Iterator[None]:
        """Other settings of the cluster for a moment."""
        crew, usual = self.pool.crew, self.assembly.config
        crew.config = self.assembly.config = replace(usual, **changes)
        try:
            yield
        finally:
            crew.config = self.assembly.config = usual

    def sample(self, purpose: str) -> list[Group]:
        """Eight draws under the watchdog's eyes."""
        with self.assembly.watched(self.record, self.record.view):
            return sample(self.pool, draws_of(), purpose=purpose)


def trainer_of(model: Any) -> Any:
    from trimtab.trainer.config import TrainerConfig
    from trimtab.trainer.local import LocalTrainer

    trainer = LocalTrainer(model, temperature=1.0, config=TrainerConfig())
    trainer.version = VERSION
    return trainer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    limits = {"engines": 2, "restarts": 99, "patience": 2.0}
    made = Site(cluster_run(model_folder(folder / "model"), cluster=limits), folder)
    with made.assembly:
        yield made


@pytest.fixture
def both(site: Site) -> Site:
    """The site with both engines at work and nothing told yet."""
    site.ready()
    site.record.told.clear()
    return site


def assert_equal(one: list[Group], other: list[Group]) -> None:
    left = {r.key: r for group in one for r in group.rollouts}
    right = {r.key: r for group in other for r in group.rollouts}
    assert left.keys() == right.keys()
    for key, rollout in left.items():
        np.testing.assert_array_equal(rollout.token_ids, right[key].token_ids)
        np.testing.assert_array_equal(rollout.logprobs, right[key].logprobs)


def test_a_pool_samples_what_one_engine_samples(both):
    groups = both.sample("train")
    assert by_key(groups) == by_key(sample(LocalEngine(both.model), draws_of()))
    assert {r.versions for g in groups for r in g.rollouts} == {
        ((VERSION, 0, r.length),) for g in groups for r in g.rollouts
    }


@pytest.mark.parametrize(
    "check",
    [
        contract.test_every_draw_gives_one_complete_group,
        contract.test_rollouts_are_whole,
        contract.test_seeds_name_the_rollout,
        contract.test_same_seed_same_rollouts,
        contract.test_order_and_company_do_not_matter,
        contract.test_nothing_asked_nothing_sampled,
        contract.test_other_tasks_run_meanwhile,
        contract.test_stop_text_ends_the_answer,
    ],
)
def test_the_contract_of_every_engine(check, both):
    check(both.pool)


@pytest.mark.parametrize("text", ["", "a" * 240], ids=["empty", "too long"])
def test_an_impossible_prompt_is_refused_before_anything_is_sampled(text, both):
    contract.test_impossible_prompt_is_refused_before_sampling(both.pool, text)


@pytest.mark.parametrize(
    ("fault", "why"), [("kill", "its process ended without a word"), ("raise", "a bug in the engine")]
)
def test_what_a_dead_engine_left_is_sampled_by_the_other(fault, why, both):
    disturbed = both.sample(fault)
    assert len(disturbed) == len({group.key for group in disturbed}) == 8, "each draw gives one group"
    (lost,) = both.record.of("engine_lost")
    assert why in lost["reason"]
    assert lost["draws"] >= 1
    assert any("was lost" in message for message in both.record.view.messages)
    assert_equal(disturbed, both.sample(fault))


def test_an_engine_that_comes_back_is_told_and_gets_the_current_weights(both):
    """Both die, so that the request waits for one of them to come back."""
    with both.assembly.watched(both.record, both.record.view):
        for worker in both.pool.crew.workers:
            os.kill(worker.about.pid, signal.SIGKILL)
        groups = sample(both.pool, draws_of())
    assert by_key(groups) == by_key(sample(LocalEngine(both.model), draws_of()))
    assert both.record.of("engine_restarted")


def test_an_engine_that_is_back_while_nobody_asks_is_at_rest(both):
    """A training may take longer than ``cluster.give_up``; a watchdog must not end who waits for its end."""
    crew = both.pool.crew
    os.kill(crew.workers[1].about.pid, signal.SIGKILL)
    both.sample("train")
    (worker,) = crew.coming
    ends = time.monotonic() + 120
    while worker.doing:
        assert time.monotonic() < ends, "it has come up, and counts as starting"
        time.sleep(0.1)
    assert worker in crew.coming, "nobody has looked"
    assert ray_answers(worker)


def ray_answers(worker: Any) -> bool:
    import ray

    return bool(ray.get(worker.actor.stacks.remote(), timeout=10))


def test_an_engine_that_no_longer_answers_is_named_and_replaced(both):
    disturbed = both.sample("stop")
    told = [event["stacks"] for event in both.record.of("no_progress") if event["stage"] == "sample"]
    assert any("T (stopped)" in stacks for stacks in told), told
    assert any("no progress" in message for message in both.record.view.messages)
    (lost,) = both.record.of("engine_lost")
    assert "cluster.patience" in lost["reason"]
    both.ready()
    assert_equal(disturbed, both.sample("stop"))


def test_others_take_over_what_a_slow_engine_has_not_begun(both):
    disturbed = both.sample("slow")
    assert not both.record.told
    assert_equal(disturbed, both.sample("slow"))


def test_log_probabilities_that_are_not_finite_go_no_further(both):
    with pytest.raises(RunError, match=r"engine \d \(process \d+ .*not finite.*was not trained on"):
        both.sample("nan")


def test_what_an_engine_says_comes_with_its_name_and_the_traceback_of_its_process(both):
    with pytest.raises(RunError, match=r"^engine \d \(process \d+ .*vLLM failed") as caught:
        both.sample("say")
    assert any("in its own process" in note for note in caught.value.__notes__)


def test_beyond_its_restarts_an_engine_ends_the_run_with_its_own_traceback(both):
    with both.limits(restarts=both.pool.crew.losses), pytest.raises(WorkerLostError) as caught:
        both.sample("raise-again")
    assert "ZeroDivisionError" in str(caught.value)
    assert "in fail" in str(caught.value), "the engine's own traceback"


@pytest.mark.parametrize(
    ("fault", "stands"), [("wait", "await asyncio.Event().wait()"), ("block", "time.sleep(3600)")]
)
def test_an_engine_that_answers_and_gives_nothing_ends_the_run_with_its_stacks(fault, stands, both):
    with both.limits(patience=1.0, give_up=3.0), pytest.raises(RunError) as caught:
        both.sample(fault)
    assert re.search(r"engine \d .*at stage sample .*cluster\.give_up", str(caught.value))
    assert stands in str(caught.value)
    assert both.record.of("no_progress")
