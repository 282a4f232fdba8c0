"""Writes what an importer has read as a run directory, whole or not at all."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import DataError, RunError, SettingError
from trimtab.record.events import Event
from trimtab.record.importers.answers import DERIVED, Placed, metrics_of, placed, row_of
from trimtab.record.importers.grades import Look, Scale, look_at, scale_of
from trimtab.record.importers.keys import KEPT_AS, Names, Step, steps_of, stride_of
from trimtab.record.importers.source import Source, Wishes
from trimtab.record.jsonl import JsonlWriter, plain
from trimtab.record.layout import PART, SCHEMA_VERSION, RunFolder

Tables = Mapping[str, Any]
ASKED = ("algorithm.name", "sampling.samples_per_prompt", "sampling.temperature", "sampling.max_new_tokens")
"""What a diagnosis wants to know of a run and most files do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import.

    keys: of ours that some step has; kept: foreign names under ``imported/``. unknown: settings that no
    file told and the user did not either. complaints: what was damaged or left out.
    """

    path: Path
    steps: int
    updates_per_step: int
    keys: tuple[str, ...]
    kept: tuple[str, ...]
    answers: int
    grades: str
    unknown: tuple[str, ...]
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is known before anything is written."""

    source: Source
    stride: int
    stride_told: bool
    names: Names
    logged: Mapping[int, Step]
    look: Look
    scale: Scale
    group_size: int | None

    @property
    def left_out(self) -> tuple[str, ...]:
        return (*self.source.complaints, *self.look.complaints)


def write(source: Source, to: Path, wishes: Wishes, tables: Tables) -> Imported:
    """Make ``to`` from ``source``. ``tables``: what the user says of the run, as the tables of a recipe.

    Raises: RunError where ``to`` is there already; DataError where nothing at all could be read; SettingError
    for a table that is none, or a reward function that no answer has.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise RunError(f"{to} is there already and an import overwrites nothing; choose another --to")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise SettingError(f"{name} is a table of settings, as in {name}.name=..., got {table!r}")
    plan = _plan(source, wishes)
    if not plan.logged and not plan.look.files:
        raise DataError("nothing could be imported: no metrics and no answers were found")
    folder = RunFolder(to.with_name(f".{to.name}{PART}"))
    if folder.path.exists():
        shutil.rmtree(folder.path)  # of an import that was killed
    folder.path.mkdir(parents=True)
    lines = _steps(plan, folder)
    _times(lines, source.modified)
    run = _run(plan, to.name, tables, lines)
    _write_lines(folder, lines, plan)
    _write_description(folder, to.name, run, plan, created=lines[0]["time"])
    if to.exists():
        to.rmdir()
    os.replace(folder.path, to)
    keys = sorted({key for line in lines for key in line["metrics"]})
    return Imported(
        path=to,
        steps=len(lines),
        updates_per_step=plan.stride,
        keys=tuple(key for key in keys if not key.startswith(KEPT_AS)),
        kept=tuple(plan.names.kept),
        answers=plan.look.answers,
        grades=plan.scale.why if plan.look.answers else "",
        unknown=tuple(path for path in ASKED if path.split(".")[1] not in run.get(path.split(".")[0], {})),
        complaints=plan.left_out,
    )


def _plan(source: Source, wishes: Wishes) -> _Plan:
    told = wishes.updates_per_step or stride_of(source.entries, source.framework)
    stride, names = told or 1, Names()
    steps = steps_of(source.entries, source.framework, source.first, stride, names)
    look = look_at(source, stride, wishes)
    return _Plan(
        source=source,
        stride=stride,
        stride_told=told is not None,
        names=names,
        logged={step.step: step for step in steps},
        look=look,
        scale=scale_of(look, wishes),
        group_size=wishes.group_size or look.group_size,
    )


def _steps(plan: _Plan, folder: RunFolder) -> list[dict[str, Any]]:
    """A line of metrics a step; its answers are written on the way, one file in memory at a time."""
    draws: Counter[str] = Counter()
    lines: list[dict[str, Any]] = []
    for step in sorted({*plan.logged, *plan.look.files}):
        logged = plan.logged.get(step)
        metrics: dict[str, float] = {} if logged is None else dict(logged.metrics)
        if step in plan.look.files:
            answers = plan.source.read(plan.look.files[step], [])
            rows = placed(answers, plan.scale, plan.group_size, draws, metrics)
            _write_rows(folder.rollouts_of(step), step, rows, plan.source.kind)
            metrics |= metrics_of(rows)
        missing = {} if logged is None else {k: v for k, v in logged.missing.items() if k not in metrics}
        line: dict[str, Any] = {"step": step, "time": logged.time if logged else None, "metrics": metrics}
        lines.append(line | ({"missing": missing} if missing else {}))
    return lines


def _run(
    plan: _Plan, name: str, tables: Tables, lines: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The tables of a recipe as far as they are known; what the user says counts."""
    found: dict[str, dict[str, Any]] = {"run": {"name": name}, "sampling": {}, "trainer": {}}
    if plan.stride_told:
        found["trainer"]["updates_per_step"] = plan.stride
    if plan.group_size is not None:
        found["sampling"]["samples_per_prompt"] = plan.group_size
    if (limit := _limit(lines)) is not None:
        found["sampling"]["max_new_tokens"] = limit
    for table, settings in tables.items():
        found[table] = {**found.get(table, {}), **settings}
    return {table: settings for table, settings in found.items() if settings}


def _limit(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """The longest answer allowed: the longest one of every step that cut some, and never a longer one."""
    metrics = [line["metrics"] for line in lines if "length/max" in line["metrics"]]
    cut = {found["length/max"] for found in metrics if found.get("length/truncated", 0.0) > 0.0}
    longest = max((found["length/max"] for found in metrics), default=0.0)
    return int(longest) if cut == {longest} else None


def _times(lines: Sequence[dict[str, Any]], modified: float) -> None:
    """Where the source has no times: backwards from the files' own, by the seconds of the steps."""
    clock = modified
    for line in reversed(lines):
        if line["time"] is None:
            line["time"] = round(clock, 3)
        clock = line["time"] - line["metrics"].get("seconds/step", 0.0)


def _write_lines(folder: RunFolder, lines: Sequence[Mapping[str, Any]], plan: _Plan) -> None:
    last, source = lines[-1]["time"], plan.source
    metrics, events = JsonlWriter(folder.metrics), JsonlWriter(folder.events)
    try:
        for line in lines:
            metrics.write(line)
        for complaint in plan.left_out:
            events.write(
                {"time": last, "step": None, "event": Event.WARNED, "message": f"import: {complaint}"}
            )
        reason = f"imported from {source.kind}" + (f"; its files end at {source.end}" if source.end else "")
        events.write({"time": last, "step": lines[-1]["step"], "event": Event.STOPPED, "reason": reason})
    finally:
        metrics.close()
        events.close()


def _write_description(folder: RunFolder, name: str, run: Tables, plan: _Plan, *, created: float) -> None:
    from trimtab.record.writer import write_json

    source, answers = plan.source, bool(plan.look.answers)
    about: dict[str, Any] = {
        "from": source.kind,
        "names_of": source.framework,
        "at": round(time.time(), 3),
        "files": list(source.files),
        "step": f"(number in the files - {source.first}) // {plan.stride}",
        "names": plan.names.notes,
        "left_out": list(plan.left_out),
        **source.known,
    }
    if answers:
        about |= {
            "grades": plan.scale.why,
            "lengths": "of answers: estimated from characters and the step's mean length",
            "derived": DERIVED,
        }
    description = {
        "schema": SCHEMA_VERSION,
        "name": name,
        "created": created,
        "run": plain(run),
        "seeds": {},
        "versions": {},
        "commits": {},
        "hardware": {},
        "facts": {"imported": plain(about)},
    }
    write_json(folder.run, description)


def _write_rows(path: Path, step: int, answers: Sequence[Placed], task: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from trimtab.record.schema import SCHEMA

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([row_of(step, answer, task) for answer in answers], schema=SCHEMA)
    pq.write_table(table, path, compression="zstd")
