"""Whoever watches a run: what the loop tells it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trimtab.record.findings import Finding


class View(Protocol):
    """Told once at the start, after every evaluation and step, and at the end. Never asked anything."""

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None: ...

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None: ...

    def message(self, text: str) -> None: ...

    def verdict(self, text: str, found: Sequence[Finding]) -> None:
        """What the doctor says of the run as it stands, after each of its looks; the gravest first."""
        ...

    def finish(self, summary: Mapping[str, Any]) -> None: ...
