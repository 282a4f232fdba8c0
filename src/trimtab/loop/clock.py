"""Where the seconds of a step go."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Sums wall-clock seconds by stage, from its making on. Stages must not be nested."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @property
    def total(self) -> float:
        return time.perf_counter() - self.started

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - before)
