"""Collected steps that wait for their training, to disk and back: a part of every checkpoint.

queue/000/groups.json, arrays.npz    the groups of the oldest one, each once
queue/000/step.json                  which of them are fresh, kept, surplus and judged, and its numbers
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.data.selection import Reason, Verdict
from trimtab.loop.collected import Collected, Judged
from trimtab.record.groups import load_groups, save_groups
from trimtab.types import ScoredGroup

COUNTS = ("fresh_kept", "draws", "rounds", "cursor", "keep_rate")
SECONDS = ("sample_seconds", "grade_seconds", "waited", "hidden")
NUMBERS = (*COUNTS, *SECONDS)


def save_queue(folder: Path, queue: Sequence[Collected]) -> None:
    """Write the steps in their order; nothing where none waits."""
    for place, found in enumerate(queue):
        _save(folder / f"{place:03d}", found)


def load_queue(folder: Path) -> list[Collected]:
    """The steps that ``save_queue`` wrote, oldest first."""
    return [_load(path) for path in sorted(folder.glob("[0-9]*"))]


def _save(folder: Path, found: Collected) -> None:
    groups: dict[str, ScoredGroup] = {}
    for scored in (*found.fresh, *found.kept, *found.surplus, *(judged.scored for judged in found.judged)):
        groups.setdefault(scored.group.key, scored)
    places = {key: place for place, key in enumerate(groups)}

    def at(scored: ScoredGroup) -> int:
        return places[scored.group.key]

    save_groups(folder, list(groups.values()))
    stored: dict[str, Any] = {name: getattr(found, name) for name in NUMBERS}
    for name in ("fresh", "kept", "surplus"):
        stored[name] = [at(scored) for scored in getattr(found, name)]
    stored["judged"] = [
        [at(judged.scored), judged.verdict.keep, str(judged.verdict.reason), judged.carried_in]
        for judged in found.judged
    ]
    (folder / "step.json").write_text(json.dumps(stored), encoding="utf-8")


def _load(folder: Path) -> Collected:
    groups = load_groups(folder)
    stored: dict[str, Any] = json.loads((folder / "step.json").read_text(encoding="utf-8"))
    return Collected(
        **{name: [groups[place] for place in stored[name]] for name in ("fresh", "kept", "surplus")},
        **{name: stored[name] for name in NUMBERS},
        judged=[
            Judged(groups[place], Verdict(keep, Reason(reason)), carried_in)
            for place, keep, reason, carried_in in stored["judged"]
        ],
    )
