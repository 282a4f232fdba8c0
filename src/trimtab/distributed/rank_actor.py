"""The worker process of one rank of the trainer. Created by ranks.py."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import ray
import torch
from torch import Tensor

from trimtab.distributed.meeting import Meeting, free_port
from trimtab.distributed.specs import TrainerSpec
from trimtab.distributed.transfer import Described, Sender, Traffic, described
from trimtab.distributed.workers import WATCH, Observed
from trimtab.errors import RunError, TrimtabError, WeightsLostError, WorkerLostError
from trimtab.objectives.objective import Objective
from trimtab.trainer.sharded_group import Group, join, open_store, reach_store
from trimtab.types import Batch, StepReport, WeightSource

Result = TypeVar("Result")


class RankActor(Observed):
    """One rank. Its methods are called on all ranks alike, and run one after the other."""

    def __init__(self, spec: TrainerSpec, rank: int) -> None:
        self.spec, self.rank = spec, rank
        self.store: Any = None
        self.group: Group | None = None
        self.trainer: Any = None
        self.done = 0
        self.source: WeightSource = ()
        self.senders: dict[Meeting, Sender] = {}

    def ticks(self) -> int:
        return self.done

    def appoint(self) -> tuple[str, int]:
        """An address of this machine that the others can reach, and a free port."""
        host = ray.util.get_node_ip_address()
        return host, free_port(host)

    def open_store(self, timeout: float) -> tuple[str, int]:
        """Rank 0 opens the store at which the ranks meet; address and port."""
        host = ray.util.get_node_ip_address()
        self.store = open_store(host, timeout=timeout)
        return host, self.store.port

    def join(self, host: str, port: int, world: int, timeout: float) -> dict[str, Any]:
        """Meet the other ranks and build this one's share. Returns what the driver has to know."""
        store = self.store or reach_store(host, port, timeout=timeout)
        device = "cuda" if torch.cuda.is_available() and ray.get_gpu_ids() else "cpu"
        torch.manual_seed(0)  # a rank that begins anew has the state that the first one had
        self.group = join(self.rank, world, store, timeout=timeout, device=device)
        self.trainer = self.spec.build(self.group)
        return {
            "old_from_update": self.trainer.old_from_update,
            "lines": self.trainer.describe().splitlines(),
        }

    def annotate(self, batch: Batch, columns: frozenset[str]) -> dict[str, Tensor] | None:
        """The columns that were filled, from rank 0."""
        filled = self._run(lambda: asyncio.run(self.trainer.annotate(batch, columns)))
        new = {name: one for name, one in filled.columns.items() if one is not batch.columns.get(name)}
        return new if self.rank == 0 else None

    def update(self, batch: Batch, objective: Objective) -> StepReport | None:
        """The report, from rank 0."""
        report = self._run(lambda: asyncio.run(self.trainer.update(batch, objective)))
        return report if self.rank == 0 else None

    def publish(self) -> tuple[list[Described], int]:
        """What the weights are, and their version; they stay where they are."""
        self.source, version = self._run(lambda: asyncio.run(self.trainer.publish()))
        return described(self.source), version

    def open_sender(self, meeting: Meeting) -> None:
        """Rank 0 opens the meeting and waits for the receivers; the other ranks have nothing to do."""
        if self.rank == 0:
            self.senders[meeting] = Sender(meeting)

    def send(self, meeting: Meeting, version: int) -> Traffic | None:
        """Gather the weights, all ranks together, and broadcast them from rank 0.

        Raises: RunError when they are not those of ``version`` any more.
        """
        if self.trainer.version != version or self.trainer.updater.counts.changed:
            raise RunError(f"the trainer has changed its weights since version {version}")
        return self._run(lambda: self._send(meeting))

    def _send(self, meeting: Meeting) -> Traffic | None:
        if self.rank == 0:
            return self.senders[meeting].send(self.source)
        for _ in self.source:
            pass
        return None

    @ray.method(concurrency_group=WATCH)
    def close_sender(self, meeting: Meeting) -> None:
        """Leave the meeting, also while the weights are being sent."""
        if (sender := self.senders.pop(meeting, None)) is not None:
            sender.close()

    def save(self, path: Path) -> None:
        """Write this rank's share below ``path``."""
        self._run(lambda: asyncio.run(self.trainer.save(path)))

    def load(self, path: Path) -> int:
        """Take back this rank's share; the version it had."""
        self._run(lambda: asyncio.run(self.trainer.load(path)))
        return self.trainer.version

    def _run(self, work: Callable[[], Result]) -> Result:
        """The result. What ends the ranks together is told from what a user can mend."""
        try:
            result = work()
        except RunError as error:
            if self.group is not None and self.group.broken is not None:
                raise WeightsLostError(str(error)) from error
            if error.__cause__ is not None and not isinstance(error.__cause__, TrimtabError):
                raise WorkerLostError(f"{error}\n{traceback.format_exc()}") from error
            raise
        self.done += 1
        return result
