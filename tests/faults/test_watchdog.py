"""The watchdog over the run's own process: a stage that stands still is named, with where it stands.

Runs in this process, without workers: nobody else can be the one that makes no progress.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.asynchronous import OwnEngine, Plant
from tests.clusters import SilentRecord
from tests.tiny_runs import model_folder, tiny_run
from trimtab.config.cluster import ClusterConfig
from trimtab.errors import RunError
from trimtab.loop import asynchronous, synchronous
from trimtab.rollout.engine import Sampling
from trimtab.types import Draw, Group

pytestmark = pytest.mark.ray

PATIENCE, GIVE_UP = 0.8, 1.6
FOREVER = 60.0


class Watch:
    """A watchdog over no workers, where none are given, and what it told."""

    def __init__(self, give_up: float = GIVE_UP, workers: Callable[[], Any] = list) -> None:
        from trimtab.distributed.notices import Notices
        from trimtab.distributed.supervision import Watchdog

        self.record, notices = SilentRecord(), Notices()
        notices.attach(self.record, self.record.view)
        self.dog = Watchdog(workers, ClusterConfig(patience=PATIENCE, give_up=give_up), notices)

    def over(self, work: Callable[[], Any]) -> None:
        """``work`` under its eyes. Raises: its verdict, as a run does."""
        self.dog.start()
        try:
            work()
        except KeyboardInterrupt:
            assert self.dog.verdict is not None
            raise self.dog.verdict from None
        finally:
            self.dog.close()

    def told(self) -> list[dict[str, Any]]:
        return self.record.of("no_progress")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


class Patient(OwnEngine):
    """Takes half of the watchdog's patience for each group."""

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose):
            await asyncio.create_task(asyncio.sleep(PATIENCE / 2))
            yield group


def plant(model: Path, folder: Path, staleness: int = 0, **machines: Any) -> Plant:
    run = tiny_run(
        model,
        run={"steps": 2},
        data={"held_out": 0},
        doctor={"every": 0},
        cluster={"engines": 1, "staleness": staleness},
    )
    return Plant(run, folder / "run", **machines)


def assert_named(watch: Watch, stage: str, place: str, work: Callable[[], Any]) -> None:
    """Told while it lasts, and in the error that ends the run."""
    with pytest.raises(RunError) as caught:
        watch.over(work)
    first = watch.told()[0]
    assert first["worker"] == "driver"
    assert stage in first["stage"].split(", ")
    assert place in first["stacks"]
    assert PATIENCE <= first["seconds"] < GIVE_UP
    assert f"at stage {first['stage']} in the run's own process" in str(caught.value)
    assert "cluster.give_up" in str(caught.value)
    assert place in str(caught.value)
    assert any("no progress" in message for message in watch.record.view.messages)


def test_a_stage_that_blocks_the_process_is_named_and_ended(model: Path, tmp_path: Path):
    """Blocked in a call of the system, which only a real signal ends."""
    stuck = plant(model, tmp_path, before_update=lambda number: time.sleep(FOREVER))
    began = time.monotonic()
    assert_named(Watch(), "update", "time.sleep(FOREVER)", lambda: stuck.go(synchronous.train))
    assert time.monotonic() - began < FOREVER / 2


def test_a_driver_that_blocks_is_named_though_workers_seem_busy(model: Path, tmp_path: Path, monkeypatch):
    """Only the event loop takes in what workers gave: they seem busy for as long as it is blocked."""
    from trimtab.distributed.supervision import Watchdog
    from trimtab.distributed.workers import Worker

    monkeypatch.setattr(Watchdog, "_look_at", lambda *_: None)
    stuck = plant(model, tmp_path, before_update=lambda number: time.sleep(FOREVER))
    watch = Watch(workers=lambda: [Worker("engine 0", doing="sample")])
    began = time.monotonic()
    assert_named(watch, "update", "time.sleep(FOREVER)", lambda: stuck.go(synchronous.train))
    assert time.monotonic() - began < FOREVER / 2


def still_worker(monkeypatch) -> Any:
    """A worker that answers, seems busy, and of which nothing moves."""
    from trimtab.distributed.supervision import Watchdog
    from trimtab.distributed.workers import Worker

    monkeypatch.setattr(Watchdog, "_answers", lambda *_: True)
    monkeypatch.setattr(Watchdog, "_where", lambda *_: "")
    return Worker("engine 0", doing="sample", since=time.monotonic())


def test_workers_are_neither_named_nor_ended_while_the_driver_blocks(monkeypatch):
    worker = still_worker(monkeypatch)
    watch = Watch(workers=lambda: [worker])
    with pytest.raises(RunError, match="in the run's own process"):
        watch.over(lambda: time.sleep(FOREVER))
    assert {event["worker"] for event in watch.told()} == {"driver"}
    assert not worker.condemned
    assert time.monotonic() - worker.since < PATIENCE, "the time of the block is not the worker's"


def test_a_worker_that_stands_still_is_named_while_the_driver_waits_for_it(monkeypatch):
    worker = still_worker(monkeypatch)
    watch = Watch(give_up=FOREVER, workers=lambda: [worker])
    watch.over(lambda: asyncio.run(asyncio.sleep(2 * PATIENCE)))
    assert {event["worker"] for event in watch.told()} == {"engine 0"}


def test_a_driver_that_waits_for_busy_workers_is_left_alone(monkeypatch):
    from trimtab.distributed.supervision import Watchdog
    from trimtab.distributed.workers import Worker

    monkeypatch.setattr(Watchdog, "_look_at", lambda *_: None)
    watch = Watch(workers=lambda: [Worker("engine 0", doing="sample")])
    watch.over(lambda: asyncio.run(asyncio.sleep(2 * GIVE_UP)))
    assert not watch.told()


def test_a_stage_that_waits_without_a_thread_is_named(model: Path, tmp_path: Path):
    """No stack of any thread shows it: the engine sleeps in the event loop."""
    stuck = plant(model, tmp_path, engine=lambda model: OwnEngine(model, lambda n: FOREVER * (n >= 0)))
    assert_named(Watch(), "collect", "await asyncio.sleep(self.wait", lambda: stuck.go(synchronous.train))


def test_a_trainer_in_a_thread_of_its_own_is_named(model: Path, tmp_path: Path):
    release = threading.Event()
    stuck = plant(model, tmp_path, staleness=1, before_update=lambda number: release.wait(FOREVER))
    try:
        assert_named(Watch(), "update", "release.wait(FOREVER)", lambda: stuck.go(asynchronous.train))
    finally:
        release.set()


def test_what_is_slow_but_goes_on_is_left_alone(model: Path, tmp_path: Path):
    """Groups come one by one, each in a task as answers of a judge do; no thread shows anything of it."""
    slow = plant(model, tmp_path, engine=Patient)
    watch, began = Watch(), time.monotonic()
    watch.over(lambda: slow.go(synchronous.train))
    assert time.monotonic() - began > 2 * GIVE_UP
    assert not watch.told()
