"""Tables of comma-separated values: a column a metric, a row a step.

The step's column is called step, global_step, train/global_step, _step or iteration, in any case; time is in
a column timestamp, _timestamp, time or "Wall time". Weights & Biases puts ``RUN - `` before a metric's name
and adds columns ending in __MIN and __MAX, which are left out. TensorBoard's download of one curve (Wall
time, Step, Value) is named after its file. Empty cells are no values.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.errors import DataError
from trimtab.record.importers.keys import framework_of
from trimtab.record.importers.source import Entry, Source

STEPS = ("step", "global_step", "train/global_step", "_step", "iteration")
TIMES = ("timestamp", "_timestamp", "time", "wall time", "_runtime")
BOUNDS = ("__MIN", "__MAX")


def recognises(path: Path) -> bool:
    """Whether this is a table, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> Source:
    """Raises DataError where no table has a column of steps and one of numbers."""
    values: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    complaints: list[str] = []
    files = _files(path)
    for file in files:
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
            rows = csv.reader(text)
            header = next(rows, [])
            columns = _columns(header, file)
            if columns is None:
                complaints.append(f"{file.name} has no column of steps ({', '.join(STEPS)}); it is left out")
                continue
            _take(rows, *columns, values, times, complaints, file.name)
    if not any(values.values()):
        raise DataError(f"{path}: no table with a column of steps ({', '.join(STEPS)}) and one of numbers")
    framework = framework_of(key for found in values.values() for key in found)
    entries = (Entry(at=step, values=values[step], time=times.get(step)) for step in sorted(values))
    return Source(
        kind="csv",
        framework=framework,
        entries=tuple(entries),
        first=min(min(values), 1),
        end=f"step {max(values)}",
        complaints=tuple(complaints),
        files=tuple(str(file.relative_to(path) if path.is_dir() else file.name) for file in files),
        modified=max(file.stat().st_mtime for file in files),
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".csv" else []
    return sorted(path.glob("*.csv"))


def _columns(header: Sequence[str], file: Path) -> tuple[int, int | None, Mapping[int, str]] | None:
    """(place of the step, of the time, place -> metric); None without steps."""
    lower = [name.strip().lower() for name in header]
    step = next((lower.index(name) for name in STEPS if name in lower), None)
    if step is None:
        return None
    time = next((lower.index(name) for name in TIMES if name in lower), None)
    named = {
        place: _metric(name.strip(), file)
        for place, name in enumerate(header)
        if place not in (step, time) and name.strip() and not name.strip().endswith(BOUNDS)
    }
    return step, time, named


def _metric(name: str, file: Path) -> str:
    if name == "Value":
        return file.stem
    return name.rpartition(" - ")[2]


def _take(
    rows: object,
    step: int,
    time: int | None,
    named: Mapping[int, str],
    values: dict[int, dict[str, float]],
    times: dict[int, float],
    complaints: list[str],
    name: str,
) -> None:
    for line, row in enumerate(rows, 2):  # pyright: ignore
        at = _number(row, step)
        if at is None or at != int(at):
            if any(cell.strip() for cell in row):
                complaints.append(f"{name}, line {line}: no step, left out")
            continue
        found = {key: value for place, key in named.items() if (value := _number(row, place)) is not None}
        values.setdefault(int(at), {}).update(found)
        when = None if time is None else _number(row, time)
        if when is not None:
            times[int(at)] = when


def _number(row: Sequence[str], place: int) -> float | None:
    try:
        return float(row[place])
    except (ValueError, IndexError):
        return None
