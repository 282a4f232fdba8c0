"""What changed since the last look, as server-sent events: pages then ask for just that."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from trimtab.dashboard.store import OpenRun, RunStore
from trimtab.errors import TrimtabError

EVERY = 1.0
"""Seconds between looks."""

HEARTBEAT = 15
"""Looks without news after which a comment keeps the connection open."""


def standing(run: OpenRun) -> dict[str, Any]:
    """Where a run stands: what a page must know to decide whether to ask again."""
    with run.lock:
        reader = run.reader
        status = reader.status()
        findings = reader.folder.findings
        return {
            "whole": run.whole,
            "step": reader.history.last_step,
            "events": len(reader.events),
            "state": status.state.value,
            "detail": status.detail,
            "keys": len(reader.history.keys) + len(reader.evaluations.keys),
            "findings": findings.stat().st_size if findings.exists() else 0,
        }


async def changes(store: RunStore, name: str) -> AsyncIterator[bytes]:
    """An event ``standing`` at once and whenever the run has moved; ends when the run cannot be read."""
    before: dict[str, Any] | None = None
    quiet = 0
    while True:
        try:
            now = standing(await asyncio.to_thread(store.open, name, whole=False))
        except TrimtabError as problem:
            yield _event("gone", {"error": str(problem)})
            return
        if now != before:
            before, quiet = now, 0
            yield _event("standing", now)
        elif (quiet := quiet + 1) % HEARTBEAT == 0:
            yield b": still here\n\n"
        await asyncio.sleep(EVERY)


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()
