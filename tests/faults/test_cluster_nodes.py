"""Two nodes of Ray on one machine: shared memory that is full, and a node that leaves in a step."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clusters import FaultySpec, cluster_run
from tests.faults.test_resume import assert_same, compared
from tests.tiny_runs import model_folder, train_silently
from trimtab.record.reader import RunReader

pytestmark = pytest.mark.ray

TWO = {"engines": 2, "patience": 5.0}
STORE = 80 << 20
FAST = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
    "max_direct_call_object_size": 100,
}
"""A node is missed after two seconds, and even small values pass through shared memory."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes with room for one worker each. Not 127.0.0.1: Ray would take the outer address instead."""
    import ray
    from ray.cluster_utils import Cluster

    from trimtab.distributed.cluster import SETTINGS

    os.environ.update(SETTINGS)
    plain = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**plain, "node_ip_address": "127.0.0.2", "_system_config": FAST},
    )
    cluster.add_node(**plain, node_ip_address="127.0.0.3")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.2")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def undisturbed(nodes: Any, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_silently(cluster_run(model, cluster=TWO), folder)
    return folder


def test_engines_are_spread_over_the_nodes_and_the_record_says_where(undisturbed):
    facts = RunReader(undisturbed).run["facts"]
    assert {worker["address"] for worker in facts["workers"]} == {"127.0.0.2", "127.0.0.3"}
    assert {node["node"] for node in facts["nodes"]} == {worker["node"] for worker in facts["workers"]}


def test_a_full_object_store_changes_nothing(undisturbed, model, tmp_path):
    """Shared memory is held full by values that cannot be moved out of it, so all else goes elsewhere."""
    import ray

    piece = 8 << 20
    references = [ray.put(np.full(piece, i, dtype=np.uint8)) for i in range(STORE // piece + 2)]
    held = [ray.get(reference) for reference in references]
    train_silently(cluster_run(model, cluster=TWO), tmp_path / "run")
    assert_same(compared(undisturbed), compared(tmp_path / "run"))
    assert [int(value[-1]) for value in held] == list(range(len(held)))


def test_a_node_that_leaves_takes_its_engine_and_nothing_else(monkeypatch, undisturbed, model, tmp_path):
    """The other engine does its work; no node has room for a new one, and the run does not wait for it."""

    def spec(run: Any, device: str) -> FaultySpec:
        return FaultySpec(run, device, folder=str(tmp_path), fault="node", after=3)

    monkeypatch.setattr("trimtab.distributed.assembly.LocalSpec", spec)
    train_silently(cluster_run(model, cluster=TWO), tmp_path / "run")
    assert_same(compared(undisturbed), compared(tmp_path / "run"))
    (lost,) = [event for event in RunReader(tmp_path / "run").events if event["event"] == "engine_lost"]
    assert "127.0.0.3" in lost["worker"]
    assert lost["draws"] >= 1
