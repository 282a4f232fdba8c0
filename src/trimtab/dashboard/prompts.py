"""The prompt pool over a run: how often each prompt was drawn and kept, and how its pass rate moved."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.dashboard.store import OpenRun

MOST_FILES = 400
"""Steps whose rollouts are read; of a longer run this many, evenly chosen, the newest among them."""

MOST_PROMPTS = 2000
SHOWN_TEXT = 500
"""Characters of a prompt."""

COLUMNS = ("group", "prompt_id", "kept", "reason", "prompt", "value")
BANDS = ((0.0, "never right"), (0.5, "mostly wrong"), (0.999, "mostly right"), (1.01, "always right"))


class Pool:
    """What the files read so far say; grows as a run does."""

    def __init__(self) -> None:
        self.read: set[int] = set()
        self.prompts: dict[str, dict[str, Any]] = {}

    def add(self, step: int, path: Path) -> None:
        """One step's file. A file that cannot be read, being torn or of an old schema, adds nothing."""
        self.read.add(step)
        try:
            table = pq.read_table(path, columns=list(COLUMNS)).to_pydict()
        except (OSError, pa.ArrowInvalid):
            return
        groups: dict[str, list[int]] = {}
        for place, group in enumerate(table["group"]):
            groups.setdefault(group, []).append(place)
        for places in groups.values():
            first = places[0]
            values = [table["value"][i] for i in places if table["value"][i] is not None]
            prompt = self.prompts.setdefault(
                table["prompt_id"][first],
                {"text": (table["prompt"][first] or "")[:SHOWN_TEXT], "draws": 0, "kept": 0, "rates": []},
            )
            prompt["draws"] += 1
            prompt["kept"] += bool(table["kept"][first])
            if values:
                prompt["rates"].append([step, sum(values) / len(values)])


def prompts(run: OpenRun) -> dict[str, Any]:
    """``prompts``: id, text, draws, kept, rates [step, pass rate]; ``bands``: prompts by last pass rate."""
    pool: Pool = run.kept.setdefault("prompts", Pool())
    folder = run.reader.folder
    steps = folder.rollout_steps()
    for step in _chosen(steps):
        if step not in pool.read:
            pool.add(step, folder.rollouts_of(step))
    listed = [
        {"id": name, **prompt, "rates": sorted(prompt["rates"])} for name, prompt in pool.prompts.items()
    ]
    read = sorted(pool.read)
    listed.sort(key=lambda prompt: (-prompt["draws"], prompt["id"]))
    return {
        "steps": len(steps),
        "steps_read": len(pool.read),
        "span": [read[0], read[-1]] if read else None,
        "draws": sum(prompt["draws"] for prompt in listed),
        "kept": sum(prompt["kept"] for prompt in listed),
        "total": len(listed),
        "bands": bands([prompt["rates"][-1][1] for prompt in listed if prompt["rates"]]),
        "prompts": listed[:MOST_PROMPTS],
    }


def bands(rates: Sequence[float]) -> list[dict[str, Any]]:
    """Prompts by the pass rate at their last draw, from never right to always right."""
    found: list[dict[str, Any]] = []
    low = -1.0
    for high, name in BANDS:
        found.append({"name": name, "prompts": sum(low < rate <= high for rate in rates)})
        low = high
    return found


def _chosen(steps: Sequence[int]) -> list[int]:
    if len(steps) <= MOST_FILES:
        return list(steps)
    places = np.unique(np.linspace(0, len(steps) - 1, MOST_FILES).astype(int))
    return [steps[i] for i in places.tolist()]
