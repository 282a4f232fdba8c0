"""Trainer ranks of a cluster die or hang; the run goes on from its last checkpoint, bit for bit.

So does a run whose engine dies, and one whose driver is killed with engines, ranks and all.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.clusters import FaultyRankSpec, FaultySpec, cluster_run, events
from tests.faults.test_resume import assert_same, compared, recorded_steps
from tests.tiny_runs import SilentView, model_folder, train_silently
from trimtab.distributed.transfer import Meeting, Sender, described, free_port
from trimtab.errors import RunError, WeightsLostError
from trimtab.record.reader import RunReader

pytestmark = pytest.mark.ray

SHAPE = {"engines": 1, "trainers": 2, "patience": 5.0}
RANKS = {"trainers": 2}
"""Sampled in the driver: for tests that compare with nothing."""


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """One Ray for all tests of the module; runs use it and leave it open."""
    from trimtab.config.cluster import ClusterConfig
    from trimtab.distributed.cluster import Cluster

    with Cluster(ClusterConfig(engines=1, trainers=2)):
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def whole(session: None, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_silently(cluster_run(model, cluster=SHAPE), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> dict[str, Any]:
    return compared(whole)


def disturbed(
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    folder: Path,
    *faults: tuple[int, str],
    cluster: dict[str, Any] = SHAPE,
) -> SilentView:
    """A run whose trainer has these faults in its last rank: after so many updates of its life, which."""

    def spec(run: Any, device: str) -> FaultyRankSpec:
        return FaultyRankSpec(run, device, folder=str(folder), faults=faults)

    monkeypatch.setattr("trimtab.distributed.assembly.RankSpec", spec)
    _, view = train_silently(cluster_run(model, cluster=cluster), folder / "run")
    return view


ALIKE = {"fast": "never", "tokens_per_micro_batch": 60}
"""Cuts an update of one process into the micro-batches that two ranks make of it."""


@pytest.mark.parametrize(("trainer", "bound"), [(ALIKE, 1e-6), ({"fast": "always"}, 0.02 * 2e-3)])
def test_an_engine_and_two_ranks_train_what_one_process_trains(trainer, bound, whole, model, tmp_path):
    """Cut alike, it is the same to rounding. With sums in another order a weight may differ by a fiftieth of
    the learning rate, as it does between runs of one process; every count is the same in both.
    """
    train_silently(cluster_run(model, cluster={}, trainer=trainer), tmp_path / "run")
    one, other = compared(tmp_path / "run"), compared(whole)
    assert other["state"] == one["state"]
    left, right = (
        load_file(folder / "checkpoints" / "step-000003" / "model" / "model.safetensors")
        for folder in (tmp_path / "run", whole)
    )
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        difference = (tensor - right[name]).abs()
        assert float(difference.max()) <= bound, name
        assert float(difference.mean()) < 1e-6, name


def test_ranks_that_die_or_stop_in_an_update_change_nothing(monkeypatch, undisturbed, model, tmp_path):
    """Killed before the first checkpoint, killed after it, and stopped so that it answers nothing."""
    faults = ((0, "kill"), (3, "kill"), (2, "stop"))
    view = disturbed(monkeypatch, model, tmp_path, *faults)
    assert_same(undisturbed, compared(tmp_path / "run"))
    lost = events(tmp_path / "run", "ranks_lost")
    assert len(lost) == 3
    assert all("trainer rank 1" in event["worker"] for event in lost)
    assert "killed" in lost[0]["reason"]
    again = [event["checkpoint"] for event in events(tmp_path / "run", "ranks_restarted")]
    assert again[0] is None
    assert again[1] == "step-000001"
    assert any("going on from step-000001" in message for message in view.messages)
    still = [e for e in events(tmp_path / "run", "no_progress") if "T (stopped)" in e["stacks"]]
    assert "trainer rank 1" in still[0]["worker"]
    assert still[0]["stage"] == "update"


def test_a_bug_in_a_rank_ends_the_run_with_its_traceback(monkeypatch, session, model, tmp_path):
    with pytest.raises(RunError, match=r"(?s)in fail.*ZeroDivisionError: a bug in the trainer"):
        disturbed(monkeypatch, model, tmp_path, (1, "raise"), cluster={**RANKS, "restarts": 0})


def test_without_restarts_the_run_ends_and_says_why(monkeypatch, session, model, tmp_path):
    with pytest.raises(WeightsLostError, match=r"(?s)trainer rank 0 \(process \d+ .*killed.*resume the run"):
        disturbed(monkeypatch, model, tmp_path, (1, "kill"), cluster={"trainers": 1, "restarts": 0})
    assert events(tmp_path / "run", "stopped")


def test_an_engine_that_dies_in_a_step_changes_neither_weights_nor_counts(
    monkeypatch, undisturbed, model, tmp_path
):
    def spec(run: Any, device: str) -> FaultySpec:
        return FaultySpec(run, device, folder=str(tmp_path), fault="kill", after=9)

    monkeypatch.setattr("trimtab.distributed.assembly.LocalSpec", spec)
    train_silently(cluster_run(model, cluster=SHAPE), tmp_path / "run")
    assert_same(undisturbed, compared(tmp_path / "run"))
    assert len(events(tmp_path / "run", "engine_lost")) == 1
    assert len(events(tmp_path / "run", "engine_restarted")) == 1


def drive(model: Path, folder: Path) -> None:
    """The body of a driver's process, with a Ray of its own."""
    train_silently(cluster_run(model, cluster=SHAPE), folder)


def test_a_killed_driver_takes_its_workers_along_and_can_be_resumed(undisturbed, model, tmp_path):
    processes, folder = multiprocessing.get_context("spawn"), tmp_path / "run"
    child = processes.Process(target=drive, args=(model, folder))
    child.start()
    while child.is_alive() and recorded_steps(folder) < 1:
        time.sleep(0.01)
    workers = RunReader(folder).run["facts"]["workers"]
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert recorded_steps(folder) < 3, "it was to be killed in the middle"
    ends = time.monotonic() + 60
    while any(Path(f"/proc/{worker['process']}").exists() for worker in workers):
        assert time.monotonic() < ends, "workers outlived their driver"
        time.sleep(0.1)
    train_silently(cluster_run(model, cluster=SHAPE), folder, resume=True)
    assert_same(undisturbed, compared(folder))


class OneRank:
    """What ``RankWeights`` asks of the ranks, in threads of this process. asked: by which methods."""

    def __init__(self, tensors: list[tuple[str, torch.Tensor]]) -> None:
        self.tensors, self.asked = tensors, list[str]()
        self.threads = ThreadPoolExecutor(2)

    def appoint(self, world: int) -> Meeting:
        return Meeting("127.0.0.1", free_port(), world, 20.0)

    def call_all(self, method: str, meeting: Meeting, *_: int) -> list[Future[None]]:
        self.asked.append(method)
        return [self.threads.submit(getattr(self, method), meeting)]

    def open_sender(self, meeting: Meeting) -> None:
        self.sender = Sender(meeting)

    def send(self, meeting: Meeting) -> None:
        self.sender.send(self.tensors)

    def close_sender(self, meeting: Meeting) -> None:
        self.sender.close()


def test_who_stops_reading_weights_early_leaves_the_meeting(monkeypatch):
    from trimtab.distributed.ranks import RankWeights

    monkeypatch.setattr("ray.get", lambda found: [one.result() for one in found])
    tensors = [(f"w{number}", torch.full((3,), float(number))) for number in range(3)]
    ranks: Any = OneRank(tensors)
    source = RankWeights(described(tensors), 1, ranks)
    reading: Any = iter(source)
    assert next(reading)[0] == "w0"
    reading.close()
    assert ranks.asked == ["open_sender", "send", "close_sender"]
    again = dict(source)
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors)
    assert ranks.asked == 2 * ["open_sender", "send", "close_sender"]
