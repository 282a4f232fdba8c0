"""A trainer of this process, its work done in a thread, so that whatever awaits meanwhile goes on."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from trimtab.objectives.objective import Objective
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, StepReport, WeightSource

T = TypeVar("T")


def offloaded(trainer: Trainer) -> Trainer:
    """The trainer itself where its calls wait for another process; one of this process as ``InThread``."""
    return InThread(trainer) if isinstance(trainer, LocalTrainer) else trainer


class InThread:
    """Implements ``Trainer`` by one that computes in this process. One thread, so its calls never overlap.

    A call that is cancelled is not interrupted: its thread ends it, and what it returns is lost.
    """

    def __init__(self, trainer: LocalTrainer) -> None:
        self._trainer = trainer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trainer")
        self.version = trainer.version
        self.old_from_update = trainer.old_from_update

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """See ``Trainer``."""
        return await self._run(self._trainer.annotate(batch, columns))

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``Trainer``."""
        return await self._run(self._trainer.update(batch, objective))

    async def publish(self) -> tuple[WeightSource, int]:
        """See ``Trainer``."""
        return await self._run(self._trainer.publish())

    async def save(self, path: Path) -> None:
        """See ``Trainer``."""
        await self._run(self._trainer.save(path))

    async def load(self, path: Path) -> None:
        """See ``Trainer``."""
        await self._run(self._trainer.load(path))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        done = await asyncio.get_running_loop().run_in_executor(self._thread, asyncio.run, work)
        self.version = self._trainer.version
        return done
