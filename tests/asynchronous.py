"""Asynchronous runs in one process: an engine with weights of its own, delays and faults on demand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.tiny_runs import SilentView
from trimtab.config import Run, run_to_dict
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import PromptMemory
from trimtab.data.prompts import load_prompts
from trimtab.loop.machines import Machines
from trimtab.loop.state import LoopState
from trimtab.models import LoadedModel, load_model
from trimtab.objectives.objective import Objective
from trimtab.record.reader import RunReader
from trimtab.record.writer import RunRecord
from trimtab.rewards.build import build_rubric
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.checkpoint import latest_checkpoint
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch, Draw, Group, StepReport, WeightSource

Loop = Callable[[Run, Machines, LoopState], Awaitable[None]]
WALL_CLOCK = ("seconds/", "tokens_per_second/", "memory/", "async/")


class OwnEngine(LocalEngine):
    """Samples from a copy of the model, as an engine in another process does.

    wait: seconds before the n-th group of the run is handed out, and before weights are taken (n = -1).
    """

    def __init__(self, model: LoadedModel, wait: Callable[[int], float] = lambda n: 0.0) -> None:
        super().__init__(replace(model, module=copy.deepcopy(model.module)))
        self.wait = wait
        self.groups = 0
        self.calls: list[tuple[str, int]] = []
        """(purpose, version at its beginning) of every call."""

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        self.calls.append((purpose, self.version))
        async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose):
            await asyncio.sleep(self.wait(self.groups))
            self.groups += 1
            yield group

    async def load_weights(self, source: WeightSource, version: int) -> None:
        await asyncio.sleep(self.wait(-1))
        await super().load_weights(source, version)


class SlowTrainer(LocalTrainer):
    """before: called with the number of the update before each, in the trainer's thread."""

    before: Callable[[int], None] = staticmethod(lambda number: None)
    made = 0

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        self.before(self.made)
        self.made += 1
        return await super().update(batch, objective)


def pausing(seconds: Sequence[float]) -> Callable[[int], float]:
    """A wait that goes through ``seconds`` in turn."""
    return lambda n: seconds[n % len(seconds)]


class Plant:
    """The machines of a run over a folder, fresh or from its newest checkpoint."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        *,
        engine: Callable[[LoadedModel], LocalEngine] = OwnEngine,
        before_update: Callable[[int], None] | None = None,
        resume: bool = False,
    ) -> None:
        self.run, self.folder, self.resume, self.view = run, folder, resume, SilentView()
        model = load_model(run.model.path, device="cpu", dtype="float32")
        self.rubric = build_rubric(run.reward)
        prompts = load_prompts(run.data, model, run.sampling.max_new_tokens)
        self.held_out = prompts.held_out
        needs = run.build_algorithm().needs
        self.trainer = SlowTrainer(
            model,
            temperature=run.sampling.temperature,
            config=run.trainer,
            reference=load_model(run.model.path) if "ref_logprobs_T" in needs else None,
            critic="values_T" in needs,
            seed=run.run.seed,
            exact_sampler=run.exact_sampler,
        )
        if before_update is not None:
            self.trainer.before = before_update
        self.engine = engine(model)
        self.state = LoopState(
            PromptCursor(prompts.train, run.run.seed),
            PromptMemory(run.data.memory),
            held_out=fingerprint(prompts.held_out),
        )
        checkpoint = latest_checkpoint(folder / "checkpoints") if resume else None
        if checkpoint is not None:
            self.state.load(checkpoint.path / "loop")
            asyncio.run(self.trainer.load(checkpoint.path))

    def go(self, loop: Loop) -> SilentView:
        """Drive the loop to its end, or to its fault."""
        return asyncio.run(self.drive(loop))

    async def drive(self, loop: Loop) -> SilentView:
        plain, seeds = run_to_dict(self.run), {"run": self.run.run.seed}
        if self.resume:
            step = self.state.counters.step
            record = RunRecord.resume(self.folder, step=step, run=plain, seeds=seeds, config=self.run.record)
        else:
            record = RunRecord.create(self.folder, run=plain, seeds=seeds, config=self.run.record)
        with record:
            machines = Machines(self.engine, self.trainer, self.rubric, record, self.view, self.held_out[:6])
            await loop(self.run, machines, self.state)
        return self.view


def until(ready: Callable[[], bool], seconds: float = 20.0) -> None:
    """Block this thread until it is so."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def compared(folder: Path, *, events: bool = False) -> dict[str, Any]:
    """Everything of a run that must not depend on wall-clock, or on where it was interrupted."""
    reader = RunReader(folder)
    history = reader.history
    newest = latest_checkpoint(reader.folder.checkpoints)
    assert newest is not None
    loop = json.loads((newest.path / "loop" / "loop.json").read_text())
    found: dict[str, Any] = {
        "metrics": {
            step: {k: v for k, v in history.metrics(step).items() if not k.startswith(WALL_CLOCK)}
            for step in history.times.steps.tolist()
        },
        "rollouts": {
            step: pq.read_table(reader.folder.rollouts_of(step)).to_pydict()
            for step in reader.folder.rollout_steps()
        },
        "tensors": {
            str(file.relative_to(newest.path)): file.read_bytes()
            for file in sorted(newest.path.rglob("*.safetensors"))
        },
        "state": {name: loop[name] for name in ("counters", "cursor", "memory", "again")},
        "evaluations": {
            path.name: {**json.loads(path.read_text()), "seconds": 0}
            for path in (folder / "evaluations").glob("*.json")
        },
    }
    if events:
        found["events"] = {
            place: {k: v for k, v in event.items() if k not in ("time", "process", "seconds")}
            for place, event in enumerate(e for e in reader.events if e.get("rule") != "standing-still")
        }
    return found


def assert_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for part, expected in one.items():
        assert other[part].keys() == expected.keys(), part
        for name, value in expected.items():
            assert repr(other[part][name]) == repr(value), f"{part}: {name} differs"
