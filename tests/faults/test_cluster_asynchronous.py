"""An engine dies while later steps are collected beside a training: nothing is lost or counted twice."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.asynchronous import assert_same, compared
from tests.clusters import FaultySpec, cluster_run, events
from tests.tiny_runs import model_folder, train_silently
from trimtab.record.reader import RunReader

pytestmark = pytest.mark.ray

STEPS = 6
BUSY = {"staleness": 1, "patience": 5.0}


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """One Ray for all runs of the module."""
    from trimtab.config.cluster import ClusterConfig
    from trimtab.distributed.cluster import Cluster

    with Cluster(ClusterConfig(engines=2)):
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def go(model: Path, folder: Path, mode: str, engines: int) -> None:
    table = {**BUSY, "in_flight": mode, "engines": engines}
    train_silently(cluster_run(model, steps=STEPS, cluster=table), folder)


def killing(monkeypatch: pytest.MonkeyPatch, folder: Path, after: int) -> None:
    """The first engine to have given so many groups is killed, once."""

    def spec(run: Any, device: str) -> FaultySpec:
        return FaultySpec(run, device, folder=str(folder), fault="kill", after=after)

    monkeypatch.setattr("trimtab.distributed.assembly.LocalSpec", spec)


def assert_counted_once(folder: Path, made: int = STEPS) -> None:
    """Each group is in the record once and trained at most once; steps are full; ages keep to the bound."""
    reader = RunReader(folder)
    steps = reader.rollout_steps()
    seen = Counter(row.key for step in steps for row in reader.rollouts(step))
    assert set(seen.values()) == {1}
    trained = Counter(r.key for step in steps for r in reader.rollouts(step) if r.update is not None)
    assert set(trained.values()) == {1}
    history = reader.history
    assert len(history) == made
    for step in range(made):
        assert (history.value(step, "staleness/max") or 0.0) <= 1.0
        rows = [row for row in reader.rollouts(step) if row.update is not None]
        assert len(rows) == 4 * (history.value(step, "flow/groups_trained") or 0.0) == 16


def test_drained_answers_make_it_the_run_without_the_fault(monkeypatch, session, model, tmp_path):
    """Bit for bit: metrics, rollouts, weights, optimizer, and the state of data order and memory.

    There is no other engine, so collection waits until it is back and has the weights of its delivery, which
    the trainer has changed meanwhile.
    """
    go(model, tmp_path / "whole", "drain", 1)
    killing(monkeypatch, tmp_path, after=5)
    go(model, tmp_path / "killed", "drain", 1)
    (lost,) = events(tmp_path / "killed", "engine_lost")
    assert lost["draws"] >= 1, "it died in the middle of a collection"
    assert len(events(tmp_path / "killed", "engine_restarted")) == 1
    assert_same(compared(tmp_path / "whole"), compared(tmp_path / "killed"))
    assert_counted_once(tmp_path / "killed")


def test_weights_that_change_below_running_answers_survive_it_too(monkeypatch, session, model, tmp_path):
    killing(monkeypatch, tmp_path, after=5)
    go(model, tmp_path / "killed", "update", 2)
    assert len(events(tmp_path / "killed", "engine_lost")) == 1
    assert_counted_once(tmp_path / "killed")
