"""A connection to Ray, local or to a cluster, and the places reserved in it for a run's workers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trimtab.config.cluster import ClusterConfig
from trimtab.errors import RunError, SettingError

LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray takes 127.0.0.1 for "ask the system" and would listen on the machine's outer address."""

STORE_BYTES = 512 << 20
"""Shared memory of a local Ray. Batches and answers pass through it; weights never do."""

PLACE_SECONDS = 60.0
STARTS = 3

SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Of a local Ray, where they are not set already: nothing is asked, nothing is sent."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one worker is given: processor cores, GPUs."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """One reserved place for each worker of a kind; a worker that is started anew takes its old place."""

    need: Need
    group: Any

    def options(self, index: int) -> dict[str, Any]:
        """What Ray needs to know to start worker ``index`` in its place."""
        return {
            "num_cpus": self.need.cpus,
            "num_gpus": self.need.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self.group, placement_group_bundle_index=index
            ),
        }

    def release(self) -> None:
        remove_placement_group(self.group)


class Cluster:
    """Ray, as long as a run needs it. A session that is already open is used and left open.

    With an address it joins that cluster, else it starts Ray on this machine, reachable on loopback alone.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.workers = config.engines + config.trainers
        self._own = not ray.is_initialized()
        if self._own:
            _connect(config.address, self.workers)
            _hush()
        total = ray.cluster_resources()
        self.cpus, self.gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
        self._places: list[Places] = []

    def need(self, device: str, gpus: int = 1) -> Need:
        """What a worker on this device gets: on GPUs as many as told, and an equal share of the cores."""
        share = max(1, min(self.cpus, cores()) // max(1, self.workers))
        return Need(1, gpus) if device == "cuda" else Need(share, 0)

    def reserve(self, count: int, need: Need, strategy: str) -> Places:
        """Places for ``count`` workers. PACK keeps them together, SPREAD apart, both where they can.

        Raises: SettingError when the cluster has less than that, or does not give it within a minute.
        """
        bundle = {"CPU": float(need.cpus), **({"GPU": float(need.gpus)} if need.gpus else {})}
        group = placement_group([bundle] * count, strategy=strategy)
        if not group.wait(PLACE_SECONDS):
            remove_placement_group(group)
            raise SettingError(
                f"the cluster gave no place to {count} workers of {need.cpus} CPUs and {need.gpus} GPUs "
                f"each; it has {self.cpus} CPUs and {self.gpus} GPUs in all, some of them perhaps in use; "
                "lower cluster.engines or cluster.trainers"
            )
        self._places.append(Places(need, group))
        return self._places[-1]

    def nodes(self) -> list[dict[str, Any]]:
        """Each living node: its address and what it offers, for run.json."""
        return [
            {
                "node": node["NodeID"],
                "address": node["NodeManagerAddress"],
                "cpus": int(node["Resources"].get("CPU", 0)),
                "gpus": int(node["Resources"].get("GPU", 0)),
            }
            for node in ray.nodes()
            if node["Alive"]
        ]

    def close(self) -> None:
        """End the workers that hold a place, and Ray itself where it was started here."""
        for places in self._places:
            try:
                places.release()
            except RayError:  # a session that has broken already holds nothing any more
                break
        self._places = []
        if self._own:
            ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _connect(address: str, workers: int) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not address:
        _start(common, workers)
        return
    try:
        ray.init(**common, address=address, runtime_env={"env_vars": _passed_on()})
    except Exception as error:  # Ray raises many kinds here; all mean "cannot be reached"
        raise RunError(
            f"no Ray cluster answers at cluster.address = {address!r} ({' '.join(str(error).split())[:200]}"
            '); start it with `ray start --head`, or set cluster.address to "" to work on this machine alone'
        ) from error


def _start(common: dict[str, Any], workers: int) -> None:
    """Ray on this machine. A busy one may miss the seconds that Ray allows itself to come up."""
    os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
    for left in reversed(range(STARTS)):
        try:
            ray.init(
                **common,
                address="local",
                include_dashboard=False,
                num_cpus=max(cores(), workers),
                object_store_memory=STORE_BYTES,
                _node_ip_address=LOOPBACK,
            )
            return
        except Exception as error:
            ray.shutdown()
            reason = " ".join(str(error).split())[:200]
            if not left:
                raise RunError(
                    f"Ray did not come up on this machine in {STARTS} tries "
                    f"({reason}); its logs are in the folder ray of the system's "
                    "temporary folder"
                ) from error


def _hush() -> None:
    """Ray prints the end of a worker to standard output, through a live view; it is told by ``Notices``."""
    inner: Any = importlib.import_module("ray._private.worker")
    if hasattr(inner, "print_to_stdstream"):
        inner.print_to_stdstream = lambda *_, **__: None


def _passed_on() -> dict[str, str]:
    """Variables of this process that decide what workers compute or where they find a model."""
    names = ("HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")
    return {name: os.environ[name] for name in names if name in os.environ}


def host_address() -> str:
    """The address by which the other nodes, if there are any, reach this process."""
    return str(ray.util.get_node_ip_address())
