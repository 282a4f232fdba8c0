"""The planner's simulation against the real loop, whose engine and trainer take simulated time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.asynchronous import OwnEngine, Plant
from tests.tiny_runs import GRADER, SilentView, tiny_run
from trimtab.loop import asynchronous
from trimtab.loop import collect as collecting
from trimtab.planning.costs import Costs, StageCost
from trimtab.planning.decoding import DecodeCost
from trimtab.planning.lengths import Answers
from trimtab.planning.simulation import Setup, simulate
from trimtab.planning.workload import Split, workload_of
from trimtab.rollout.engine import Sampling
from trimtab.types import Batch, Draw, Group, ScoredGroup, StepReport, WeightSource

TICK, UPDATE, DELIVERY = 1.0, 4.0, 0.75


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps take no time: the clock jumps to the next timer. Computing takes none on it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        self.loop.now += timeout
        return super().select(0)


class Paced(OwnEngine):
    """Takes a tick a token; works at two deals of a step one after the other, as a local engine in a pool."""

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        size = -(-len(draws) // 2)
        for start in range(0, len(draws), size):
            deal = draws[start : start + size]
            groups = [g async for g in super().generate(deal, n, sampling, seed=seed, purpose=purpose)]
            spent = 0
            for group in sorted(groups, key=lambda g: max(r.length for r in g.rollouts)):
                ticks = max(r.length for r in group.rollouts) - 1 if purpose == "train" else spent
                await asyncio.sleep(TICK * (ticks - spent))
                spent = ticks
                yield group

    async def load_weights(self, source: WeightSource, version: int) -> None:
        await asyncio.sleep(DELIVERY if version > 1 else 0.0)
        await super().load_weights(source, version)


class PacedTrainer:
    """Another trainer's work, each update of which takes its time."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def update(self, batch: Batch, objective: Any) -> StepReport:
        await asyncio.sleep(UPDATE)
        return await self.inner.update(batch, objective)


class Timing(SilentView):
    """Notes when each step ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def step(self, step: int, values: Mapping[str, float]) -> None:
        super().step(step, values)
        self.ends.append(asyncio.get_running_loop().time())


class Replayed:
    """The very groups of a run, in the order in which it drew them."""

    how, mean, mean_square, keep_rate = "the run itself", 1.0, 1.0, 1.0

    def __init__(self, groups: Sequence[tuple[np.ndarray, bool]]) -> None:
        self.groups, self.place = groups, 0

    def draw(self, random: np.random.Generator, groups: int, answers: int) -> Answers:
        taken = [self.groups[(self.place + i) % len(self.groups)] for i in range(groups)]
        self.place += groups
        return Answers(np.stack([lengths for lengths, _ in taken]), np.array([kept for _, kept in taken]))


@pytest.mark.parametrize(("staleness", "algorithm"), [(0, "dapo"), (1, "dapo"), (2, "dr_grpo")])
def test_step_ends_are_those_of_the_loop(
    staleness: int, algorithm: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[tuple[np.ndarray, bool]] = []
    judge = collecting._judge

    def watched(found: Any, scored: ScoredGroup, selection: Any, wanted: int) -> None:
        before = found.fresh_kept
        judge(found, scored, selection, wanted)
        drawn.append((np.array([r.length for r in scored.group.rollouts]), found.fresh_kept > before))

    monkeypatch.setattr(collecting, "_judge", watched)
    settings: dict[str, Any] = {"name": algorithm}
    if algorithm == "dapo":
        settings["overlong_buffer"] = 4
    run = tiny_run(
        model,
        settings,
        run={"steps": 11},
        data={"held_out": 0},
        record={"checkpoint_every": 100},
        reward={"graders": [{"name": GRADER, "isolated": False}]},
        trainer={"learning_rate": 1e-6},
        sampling={"prompts_per_step": 4, "samples_per_prompt": 3, "max_new_tokens": 12},
        cluster={"engines": 1, "staleness": staleness},
    )
    plant = Plant(run, tmp_path, engine=Paced)
    plant.trainer, plant.view = PacedTrainer(plant.trainer), Timing()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(plant.drive(asynchronous.train))
    costs = Costs(decode=DecodeCost(fixed=TICK), update=StageCost(fixed=UPDATE), sync=DELIVERY)
    got = simulate(
        Setup(
            workload=workload_of(run, 1.0, float32=True, engine="local"),
            lengths=Replayed(drawn),
            split=Split(engines=1, staleness=staleness, engine="local"),
            costs=costs,
            steps=6,
        )
    )
    warm = staleness + 2 + (-(staleness + 2)) % max(1, staleness)
    real = (plant.view.ends[warm + 5] - plant.view.ends[warm - 1]) / 6
    assert got.step == pytest.approx(real, rel=1e-6)
