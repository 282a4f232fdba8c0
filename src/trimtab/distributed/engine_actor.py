"""The worker process of one engine. Created by crew.py."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from trimtab.distributed.meeting import Meeting
from trimtab.distributed.specs import EngineSpec
from trimtab.distributed.transfer import Described
from trimtab.distributed.workers import Built, Observed
from trimtab.rollout.engine import Sampling
from trimtab.types import Draw, Group, Rollout


class EngineActor(Observed):
    """One engine. Asynchronous: weights can come while it samples, and it answers meanwhile."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.engine: Any = None
        self.sampled = 0
        self.requests: list[AsyncIterator[Group]] = []

    async def build(self) -> Built:
        """Load the model; apart from the constructor, so that an error keeps its kind."""
        self.engine = await self.spec.build()
        dtype = str(self.engine.dtype).removeprefix("torch.")
        return Built(self.about(), int(getattr(self.engine, "link_ranks", 1)), dtype)

    async def close(self) -> None:
        """End what the engine has started besides itself."""
        end = getattr(self.engine, "close", None)
        if end is not None and (waiting := end()) is not None:
            await waiting

    def waiting(self) -> list[object]:
        return list(self.requests)

    def ticks(self) -> int:
        return self.sampled + int(getattr(self.engine, "ticks", 0))

    async def sample(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, seed: int, purpose: str
    ) -> AsyncIterator[tuple[str, tuple[Rollout, ...]]]:
        """The rollouts of each draw under its key, as soon as they are finished."""
        groups = self.engine.generate(draws, n, sampling, seed=seed, purpose=purpose)
        self.requests.append(groups)
        try:
            async for group in groups:
                self.sampled += 1
                yield group.key, group.rollouts
        finally:
            self.requests.remove(groups)

    async def open_link(self, meeting: Meeting, rank: int) -> None:
        """Come to a meeting as one of its receivers."""
        await self.engine.open_link(meeting, rank)

    async def receive_weights(self, described: Sequence[Described], version: int) -> None:
        await self.engine.receive_weights(described, version)
