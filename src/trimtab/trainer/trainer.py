"""The seam between whoever owns weights and optimizer, and the loop."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from trimtab.objectives.objective import Objective
from trimtab.types import Batch, StepReport, WeightSource


@runtime_checkable
class Trainer(Protocol):
    """Owns weights and optimizer; blind to algorithms. ``version`` counts published weights.

    ``old_from_update``: an update without ``old_logprobs_T`` takes those of its own pass, so that its ratio
    is 1; right only for the first update after the batch was sampled.
    """

    version: int
    old_from_update: bool

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """Fill ``old_logprobs_T``, ``ref_logprobs_T``, ``values_T`` as asked, without gradient."""
        ...

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """One optimizer step on one whole update's batch (columns filled, weights not yet)."""
        ...

    async def publish(self) -> tuple[WeightSource, int]:
        """The current weights and their new version."""
        ...

    async def save(self, path: Path) -> None: ...

    async def load(self, path: Path) -> None: ...
