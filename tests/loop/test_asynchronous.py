"""The asynchronous loop: exact at S = 0, repeatable where answers are drained, always within its bound."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.asynchronous import OwnEngine, Plant, assert_same, compared, pausing
from tests.tiny_runs import tiny_run
from trimtab.catalog import find
from trimtab.config import Run
from trimtab.errors import RunError
from trimtab.loop import asynchronous, synchronous
from trimtab.models import LoadedModel
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.rollout import local
from trimtab.rollout.local import LocalEngine
from trimtab.types import Group, Rollout, VersionSpan

DAPO = {"name": "dapo", "overlong_buffer": 4}
ONLY_LAST = {"checkpoint_every": 100, "tokens": "all"}
NO_EVALUATION = {"held_out": 0}
NO_DOCTOR = {"every": 0}


def run_of(
    model: Path, staleness: int, *, algorithm: Mapping[str, Any] = DAPO, mode: str = "drain", **sections: Any
) -> Run:
    cluster = {"engines": 1, "staleness": staleness, "in_flight": mode}
    defaults = {"run": {"steps": 5}, "data": NO_EVALUATION, "record": ONLY_LAST, "doctor": NO_DOCTOR}
    return tiny_run(model, algorithm, **{**defaults, "cluster": cluster, **sections})


def hurried(engine_waits: tuple[float, ...], update_waits: tuple[float, ...]) -> dict[str, Any]:
    """Delays of the two sides, in turn."""
    return {
        "engine": lambda model: OwnEngine(model, pausing(engine_waits)),
        "before_update": lambda number: time.sleep(update_waits[number % len(update_waits)]),
    }


def trained_keys(folder: Path) -> list[str]:
    """Every rollout that an update used, by step and key."""
    reader = RunReader(folder)
    return [
        row.key for step in reader.rollout_steps() for row in reader.rollouts(step) if row.update is not None
    ]


def ages(folder: Path) -> list[float | None]:
    history = RunReader(folder).history
    return [history.value(step, "staleness/max") for step in range(len(history))]


# ------------------------------------------------------------------------------ S = 0


@pytest.mark.parametrize("engine", [OwnEngine, LocalEngine])
def test_without_staleness_it_is_the_synchronous_loop_to_the_bit(
    engine: type[LocalEngine], model: Path, tmp_path: Path
):
    """The same metrics, weights, rollouts, evaluations, events and checkpoints."""
    sections = {
        "data": {"held_out": 6},
        "evaluation": {"every": 2},
        "record": {"checkpoint_every": 2, "tokens": "all"},
        "doctor": {"every": 10},
    }
    run = run_of(model, 0, **sections)
    Plant(run, tmp_path / "sync", engine=engine).go(synchronous.train)
    Plant(run, tmp_path / "async", engine=engine).go(asynchronous.train)
    one, other = (compared(tmp_path / name, events=True) for name in ("sync", "async"))
    assert_same(one, other)
    keys = [set(RunReader(tmp_path / name).history.metrics(1)) for name in ("sync", "async")]
    assert keys[0] == keys[1], "no metric more, no metric less, clocks included"
    assert not any(key.startswith(("async/", "correction/")) for key in keys[0])


# ------------------------------------------------------------------------------ drained


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_delays_decide_nothing(staleness: int, model: Path, tmp_path: Path):
    run = run_of(model, staleness)
    Plant(run, tmp_path / "plain").go(asynchronous.train)
    waits = hurried((0.04, 0.0, 0.01), (0.0, 0.15, 0.0, 0.0, 0.1))
    Plant(run, tmp_path / "uneven", **waits).go(asynchronous.train)
    assert_same(compared(tmp_path / "plain", events=True), compared(tmp_path / "uneven", events=True))
    expected = [step - staleness * max(0, (step - 1) // staleness) for step in range(5)]
    assert ages(tmp_path / "plain") == expected, "the age that the period of deliveries gives"
    assert max(expected) == staleness
    synced = [event for event in RunReader(tmp_path / "plain").events if event["event"] == Event.SYNCED]
    regular = [done - 1 for done in range(1, 6) if done % staleness == 0 or done == 5]
    assert [event["step"] for event in synced] == regular


def test_evaluations_are_of_their_steps_weights_and_change_nothing(model: Path, tmp_path: Path):
    run = run_of(model, 2)
    Plant(run, tmp_path / "without").go(asynchronous.train)
    evaluated = run_of(model, 2, data={"held_out": 6}, evaluation={"every": 1})
    plant = Plant(evaluated, tmp_path / "with")
    plant.go(asynchronous.train)
    versions = [version for purpose, version in plant.engine.calls if purpose == "evaluation"]
    assert versions == [0, 1, 2, 3, 4, 5], "one at the start, one after each step, the last of them final"
    one, other = (compared(tmp_path / name) for name in ("without", "with"))
    for part in ("rollouts", "tensors"):
        assert_same({part: one[part]}, other)


def test_each_answer_has_one_version_and_the_probe_follows_the_first_delivery(model: Path, tmp_path: Path):
    plant = Plant(run_of(model, 1), tmp_path / "run")
    plant.go(asynchronous.train)
    checks = [e["check"] for e in RunReader(tmp_path / "run").events if e["event"] == Event.CHECKED]
    assert checks == [
        "a rollout is the same alone and in a batch",
        "ratio is 1 before the first update",
        "an update changes the published weights",
        "engine follows the trainer's weights",
    ]
    assert [version for purpose, version in plant.engine.calls if purpose == "probe"] == [1]


class Forgetful(OwnEngine):
    """Takes a new version's number and keeps the old weights."""

    async def load_weights(self, source: Any, version: int) -> None:
        if version == 0:
            await super().load_weights(source, version)
        self.version = version


def test_weights_that_never_arrive_are_seen_at_the_first_delivery(model: Path, tmp_path: Path):
    run = run_of(model, 1, trainer={"learning_rate": 5e-2})
    with pytest.raises(RunError, match="engine follows the trainer's weights.*older weights"):
        Plant(run, tmp_path / "run", engine=Forgetful).go(asynchronous.train)


def test_sampling_goes_on_while_a_step_is_trained(model: Path, tmp_path: Path):
    """An update that ends only once the next step's groups have been sampled can end."""
    seen: list[int] = []

    def wait_for_groups(number: int) -> None:
        if number == 0:
            end = time.monotonic() + 20.0
            while len(plant.state.queue) < 1:
                assert time.monotonic() < end, "nothing was sampled beside the update"
                time.sleep(0.005)
        seen.append(number)

    plant = Plant(run_of(model, 1), tmp_path / "run", before_update=wait_for_groups)
    plant.go(asynchronous.train)
    assert seen[0] == 0
    history = RunReader(tmp_path / "run").history
    assert history.value(1, "async/queue") == 1.0, "step 1 waited when it was taken"
    assert (history.value(1, "async/overlap") or 0.0) > 0.5
    for key in history.keys:
        find(key)
    for key in ("async/trainer_wait", "async/sampler_wait", "seconds/wait", "seconds/sample"):
        assert history.value(1, key) is not None


# ------------------------------------------------------------------------------ the bound


class Relabelled(OwnEngine):
    """Gives some groups, after the first steps, tokens of a version long gone."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self.lied: list[str] = []

    async def generate(self, *args: Any, **kwargs: Any):
        async for group in super().generate(*args, **kwargs):
            if self.version >= 2 and len(self.lied) < 2 and kwargs.get("purpose", "train") == "train":
                self.lied.append(group.key)
                group = Group(draw=group.draw, rollouts=tuple(map(aged, group.rollouts)))
            yield group


def aged(rollout: Rollout) -> Rollout:
    fields = {name: getattr(rollout, name) for name in Rollout.__dataclass_fields__}
    return Rollout(**{**fields, "versions": (VersionSpan(0, 0, rollout.length),)})


def test_drained_answers_beyond_the_bound_stop_the_run(model: Path, tmp_path: Path):
    run = run_of(model, 1, algorithm={"name": "grpo", "kl_coef": 0.0})
    with pytest.raises(RunError, match="more than 1 versions older than version"):
        Plant(run, tmp_path / "run", engine=Relabelled).go(asynchronous.train)
    assert RunReader(tmp_path / "run").rollouts(3), "what was sampled is there to be looked at"


def test_in_flight_answers_beyond_the_bound_are_dropped_counted_and_drawn_again(model: Path, tmp_path: Path):
    run = run_of(model, 1, algorithm={"name": "grpo", "kl_coef": 0.0}, mode="update", run={"steps": 8})
    plant = Plant(run, tmp_path / "run", engine=Relabelled)
    plant.go(asynchronous.train)
    lied = plant.engine.lied
    reader = RunReader(tmp_path / "run")
    dropped = [event for event in reader.events if event["event"] == Event.GROUP_DROPPED]
    assert sorted((event["group"], event["reason"]) for event in dropped) == sorted(
        (k, "stale") for k in lied
    )
    steps = {event["step"] for event in dropped}
    assert sum(reader.history.value(step, "flow/dropped/stale") or 0.0 for step in steps) == 2.0
    assert sum(reader.history.value(step, "flow/groups_trained") or 0.0 for step in range(8)) == 8 * 4 - 2
    trained = trained_keys(tmp_path / "run")
    assert not [key for key in trained if key.rpartition("/")[0] in lied]
    again = {f"{key.rpartition('#')[0]}#-{place}" for place, key in enumerate(lied, start=1)}
    assert again <= {key.rpartition("/")[0] for key in trained}, "their prompts have come again"
    assert plant.state.again == []
    assert plant.state.counters.redraws == 2


def test_in_flight_weights_change_below_running_answers_within_the_bound(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    slow = SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0.01))
    monkeypatch.setattr(local, "asyncio", slow)
    run = run_of(model, 2, algorithm={"name": "grpo", "kl_coef": 0.0}, mode="update", run={"steps": 8})
    plant = Plant(run, tmp_path / "run")
    plant.go(asynchronous.train)
    reader = RunReader(tmp_path / "run")
    assert max(age or 0.0 for age in ages(tmp_path / "run")) <= 2.0
    warned = [event["message"] for event in reader.events if event["event"] == Event.WARNED]
    assert any("cannot be repeated exactly" in message for message in warned)
    spans = [len(row.versions) for step in reader.rollout_steps() for row in reader.rollouts(step)]
    assert max(spans) > 1, "no answer was under way when weights came"
    for key in ("correction/factor", "correction/ess", "correction/k3"):
        assert reader.history.value(7, key) is not None
    assert (reader.history.value(7, "correction/k3") or 0.0) > 1e-6, "answers of older policies were weighed"


def test_carried_groups_keep_to_the_bound_too(model: Path, tmp_path: Path):
    """Selection carries what a step does not need, as far as the larger of the two bounds allows."""
    for allowed in (1, 3):
        table = {**DAPO, "selection": {"max_staleness": allowed}}
        folder = tmp_path / str(allowed)
        Plant(run_of(model, 1, algorithm=table, run={"steps": 8}), folder).go(asynchronous.train)
        history = RunReader(folder).history
        assert max(age or 0.0 for age in ages(folder)) <= allowed
        carried = history.series("flow/groups_carried_in").values.sum()
        assert (carried > 0) == (allowed == 3)
        dropped = "flow/dropped/stale" in history.keys
        assert dropped or allowed == 3, "a surplus is one version too old when its turn comes"
