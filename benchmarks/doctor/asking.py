"""Asking our doctor and the other packages about a run. What the others said is kept: it never changes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.doctor.peers import Ask
from benchmarks.doctor.peers.alarms import Alarm
from benchmarks.doctor.runs import folder_of
from benchmarks.doctor.scene import FOLDER, Scene

from trimtab.doctor.case import case_of
from trimtab.doctor.diagnose import diagnose
from trimtab.record.reader import RunReader


@dataclass(frozen=True, slots=True)
class Said:
    """One finding of ours: its rule, its severity, and the names of its causes, likeliest first."""

    rule: str
    severity: str
    causes: tuple[str, ...]


def ours(folder: Path) -> list[Said]:
    """What our doctor finds in a run directory, in its own order."""
    found = diagnose(case_of(RunReader(folder))).found
    return [Said(one.rule, str(one.severity), tuple(cause.name for cause in one.causes)) for one in found]


def theirs(tool: str, ask: Ask, scene: Scene, root: Path) -> list[Alarm]:
    """What another package says of the run, asked once and then read back."""
    kept = root / FOLDER / "asked" / tool / f"{scene.name}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as empty:
            alarms = ask(RunReader(folder_of(scene, root).resolve()), Path(empty))
        kept.write_text(json.dumps([dataclasses.asdict(alarm) for alarm in alarms]) + "\n", encoding="utf-8")
    return [Alarm(**fields) for fields in json.loads(kept.read_text(encoding="utf-8"))]
