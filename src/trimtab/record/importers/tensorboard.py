"""TensorBoard event files of any trainer: scalars by step, names of TRL or verl where they are those.

All files below the folder are one run; where a tag has a step twice, the later record counts. Text,
pictures and histograms are left out.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.record.importers.event_file import DamagedError, scalars
from trimtab.record.importers.keys import framework_of
from trimtab.record.importers.source import Entry, Source

PATTERN = "*tfevents*"


def recognises(path: Path) -> bool:
    """Whether there are event files here."""
    return bool(_files(path))


def read(path: Path) -> Source:
    """Raises DataError where no event file holds a scalar."""
    values: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    complaints: list[str] = []
    files = _files(path)
    for file in files:
        try:
            for scalar in scalars(file):
                values.setdefault(scalar.step, {})[scalar.tag] = scalar.value
                times[scalar.step] = max(scalar.time, times.get(scalar.step, 0.0))
        except DamagedError as problem:
            complaints.append(f"{file.name}: {problem}; the records before are imported")
    if not values:
        raise DataError(f"{path} holds no event file with a scalar")
    framework = framework_of(tag for tags in values.values() for tag in tags)
    entries = (Entry(at=step, values=values[step], time=times[step]) for step in sorted(values))
    return Source(
        kind="tensorboard",
        framework=framework,
        entries=tuple(entries),
        first=0 if framework is None else 1,
        end=f"step {max(values)}",
        complaints=tuple(complaints),
        files=tuple(str(file.relative_to(path) if path.is_dir() else file.name) for file in files),
        modified=max(file.stat().st_mtime for file in files),
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if "tfevents" in path.name else []
    return sorted((file for file in path.rglob(PATTERN) if file.is_file()), key=lambda file: file.name)
