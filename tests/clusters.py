"""Runs on a cluster of processes of this machine, with engines and ranks that fail on purpose."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny_runs import SilentView, tiny_run
from trimtab.config import Run
from trimtab.config.arguments import trainer_arguments
from trimtab.distributed.linked import LinkedLocalEngine
from trimtab.distributed.specs import LocalSpec, RankSpec
from trimtab.errors import RunError
from trimtab.models import load_model
from trimtab.objectives.objective import Objective
from trimtab.record.reader import RunReader
from trimtab.rollout.engine import Sampling
from trimtab.trainer.sharded import ShardedTrainer
from trimtab.trainer.sharded_group import Group as RankGroup
from trimtab.types import Batch, Draw, Group, StepReport

DAPO = {"name": "dapo", "overlong_buffer": 4}
FAULTS = ("kill", "node", "raise", "say", "nan", "slow", "wait", "block", "stop")
"""The process is killed; the daemon of its node, on 127.0.0.3, is; a bug; one that is told, with the
traceback of yet another process; NaN log-probabilities; half a second a group; a wait without end; a call
without end; stopped as by a debugger."""


def cluster_run(model: Path, *, steps: int = 3, cluster: dict[str, Any], **sections: Any) -> Run:
    """A tiny run of few steps with this ``[cluster]`` table; it carries groups, as dapo does."""
    return tiny_run(
        model,
        DAPO,
        run={"steps": steps, "seed": 3},
        evaluation={"samples": 2, "ks": [1, 2], "every": 0},
        doctor={"every": 0},
        cluster=cluster,
        **sections,
    )


def events(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """The events of these kinds of the run in this folder."""
    return [event for event in RunReader(folder).events if event["event"] in kinds]


class SilentRecord:
    """Keeps the events it was told, as a record would."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.view = SilentView()

    def event(self, event: Any, step: int | None = None, **fields: Any) -> None:
        self.told.append({"event": str(event), **fields})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.told if event["event"] == kind]


def struck(folder: str, name: str, times: int = 1) -> bool:
    """True ``times`` times in all processes together."""
    for number in range(times):
        try:
            os.close(os.open(f"{folder}/{name}-{number}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False


@dataclass(frozen=True, slots=True)
class FaultySpec(LocalSpec):
    """Engines that fail. A request whose purpose is the name of a fault meets that one, else ``fault``.

    folder: for marks, so that a fault happens ``times`` times in all. after: groups given before.
    """

    folder: str = ""
    fault: str = ""
    after: int = 0
    times: int = 1

    async def build(self) -> LinkedLocalEngine:
        if self.fault == "unbuildable" and struck(self.folder, self.fault, self.times):
            raise RuntimeError("the GPU fell off the bus")
        model = load_model(self.run.model.path, device=self.device, dtype=self.run.model.dtype)
        engine = FaultyEngine(model)
        engine.spec = self
        return engine


class FaultyEngine(LinkedLocalEngine):
    """Fails after a group of a request."""

    spec: FaultySpec
    given = 0
    slow = False

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        own = purpose.split("-")[0]
        fault = own if own in FAULTS else self.spec.fault
        async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose):
            self.given += 1
            late = self.given > self.spec.after and self.version > 0
            if fault in FAULTS and late and self.may_strike(fault):
                group = await self.fail(fault, group)
            yield group

    def may_strike(self, fault: str) -> bool:
        import ray

        away = ray.util.get_node_ip_address() == "127.0.0.3"
        return self.slow or ((fault != "node" or away) and struck(self.spec.folder, fault, self.spec.times))

    async def fail(self, fault: str, group: Group) -> Group:
        match fault:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "node":
                os.kill(os.getppid(), signal.SIGKILL)
                await asyncio.Event().wait()
            case "raise":
                raise ZeroDivisionError("a bug in the engine")
            case "say":
                fault = RunError("vLLM failed (ZeroDivisionError: a bug in the engine)")
                fault.add_note("Traceback (most recent call last):\n  in its own process")
                raise fault
            case "slow":
                self.slow = True
                await asyncio.sleep(0.5)
            case "wait":
                await asyncio.Event().wait()
            case "block":
                time.sleep(3600)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "nan":
                first = group.rollouts[0]
                bad = np.full_like(first.logprobs, np.nan)
                return replace(group, rollouts=(replace(first, logprobs=bad), *group.rollouts[1:]))
        return group


@dataclass(frozen=True, slots=True)
class FaultyRankSpec(RankSpec):
    """Ranks of which the last one fails: for each (updates, fault), once, after so many updates of a life."""

    folder: str = ""
    faults: tuple[tuple[int, str], ...] = ()

    def build(self, group: RankGroup) -> ShardedTrainer:
        model = load_model(self.run.model.path, device=self.device, dtype=self.run.model.dtype)
        trainer = FaultyTrainer(model, group=group, **trainer_arguments(self.run))
        trainer.spec = self
        return trainer


class FaultyTrainer(ShardedTrainer):
    """Does what its spec says."""

    spec: FaultyRankSpec
    made = 0

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        due = [(i, fault) for i, (after, fault) in enumerate(self.spec.faults) if self.made >= after]
        self.made += 1
        if self.group.rank == self.group.size - 1:
            for number, fault in due:
                if struck(self.spec.folder, f"{number}-{fault}"):
                    self.fail(fault)
        return await super().update(batch, objective)

    def fail(self, fault: str) -> None:
        match fault:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                with self._together("update"):
                    raise ZeroDivisionError("a bug in the trainer")
