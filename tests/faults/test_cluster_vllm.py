"""A run that samples with a vLLM engine in a pool: it trains, loses vLLM in a step, and is evaluated by it.

One run and what it left: an engine takes many seconds to start.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import cluster_run, events
from tests.contract.test_engines import draws_of
from tests.faults.test_cluster_asynchronous import assert_counted_once
from tests.tiny_runs import train_silently
from tests.vllm_engines import served_model
from trimtab.cli import main
from trimtab.errors import DataError
from trimtab.models import export_model
from trimtab.record.reader import RunReader
from trimtab.rollout.engine import Sampling
from trimtab.types import Group

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow]

STEPS, ROOM = 3, 64
TABLE = {
    "engine": "vllm",
    "engines": 1,
    "trainers": 1,
    "vllm": {"max_sequences": 4, "cache_gib": 0.0005, "max_model_len": ROOM},
}
"""One deal of four answers at a time, so that a fault finds others waiting. The cache has no room for all of
the model's context, and vLLM would not start on it."""


@dataclass
class Killing:
    """Kills the engine's inner process, vLLM's own, once: when the first group of the second step has come.

    generate: the pool's own.
    """

    generate: Any
    pool: Any = None
    engine: int = 0
    processes: list[int] = field(default_factory=list)

    async def __call__(self, pool: Any, *asked: Any, **how: Any) -> AsyncIterator[Group]:
        async for group in self.generate(pool, *asked, **how):
            if pool.version == 1 and not self.processes:
                self.pool, self.engine = pool, pool.crew.workers[0].about.pid
                self.processes = below(self.engine)
                os.kill(self.processes[-1], signal.SIGKILL)
            yield group


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("served") / "model", served_model()
    export_model(made.module, made.tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def killing() -> Killing:
    from trimtab.distributed.pool import EnginePool

    return Killing(EnginePool.generate)


@pytest.fixture(scope="module")
def trained(model: Path, killing: Killing, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trimtab.distributed.pool import EnginePool

    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnginePool, "generate", lambda pool, *asked, **how: killing(pool, *asked, **how))
        summary, _ = train_silently(cluster_run(model, steps=STEPS, cluster=TABLE), folder)
    assert summary["steps"] == STEPS
    return folder


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def test_sampler_and_trainer_agree_at_every_step_and_beyond_the_engine(trained: Path):
    checked = {event["check"]: event for event in events(trained, "checked")}
    for name in ("ratio is 1 before the first update", "engine follows the trainer's weights"):
        assert checked[name]["passed"]
        assert checked[name]["limit"] == 1e-4, "both sides compute in float32"
    history = RunReader(trained).history
    for step in range(STEPS):
        difference = history.value(step, "mismatch/logprob_max")
        assert difference is not None
        assert difference <= 1e-4
        assert (history.value(step, "optimizer/updates") or 0) > 0


def test_the_engine_that_was_lost_is_back_and_every_group_counts_once(trained: Path, killing: Killing):
    (lost,) = events(trained, "engine_lost")
    (back,) = events(trained, "engine_restarted")
    assert "vLLM engine died" in lost["reason"]
    assert back["process"] != killing.engine
    assert_counted_once(trained, STEPS)
    ends = time.monotonic() + 30
    while left := [pid for pid in (killing.engine, *killing.processes) if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < ends, f"{left} outlived their engine"
        time.sleep(0.1)


def test_weights_came_by_broadcast_after_every_step_and_to_the_new_engine(trained: Path, killing: Killing):
    size = (trained / "checkpoints" / f"step-{STEPS:06d}" / "model" / "model.safetensors").stat().st_size
    traffic = killing.pool.traffic
    assert traffic.pushes == STEPS + 2, "at the start, after each step, and once more for the engine"
    assert traffic.bytes / traffic.pushes == pytest.approx(size, rel=0.05)


def test_a_prompt_beyond_the_room_is_refused_before_anything_is_sampled(trained: Path, killing: Killing):
    long = draws_of(["1+1", "a" * (ROOM - 39)])
    with pytest.raises(DataError, match=r"'p1' has 25 tokens.*beyond cluster\.vllm\.max_model_len = 64"):
        asyncio.run(anext(killing.generate(killing.pool, long, 1, Sampling(max_new_tokens=40), seed=1)))


def test_the_command_evaluates_a_checkpoint_with_vllm(trained: Path, capsys: pytest.CaptureFixture[str]):
    """Nearly greedy, so that it is the same answers whichever engine samples; and of many lengths."""
    found = []
    words = ["evaluation.temperature=0.0001", 'sampling.stop=["e", "1", "x", "+"]', "--json"]
    for engine in ("vllm", "local"):
        assert main(["eval", str(trained), f"cluster.engine={engine}", *words]) == 0
        out, told = capsys.readouterr()
        assert ("engine: vLLM" in told) == (engine == "vllm")
        found.append(json.loads(out))
    assert found[0] == {**found[1], "seconds": found[0].get("seconds")}
    assert 1.0 < found[0]["mean_length"] < 12.0, "some answers have ended by themselves"
