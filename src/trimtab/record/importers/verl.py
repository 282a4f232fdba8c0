"""Runs of verl: the file logger's JSON Lines, and dumps of rollouts.

    metrics.jsonl     {"step": 1, "data": {"critic/score/mean": 0.4, ...}}    trainer.logger = ["file"]
    DUMP/1.jsonl      {"input": ..., "output": ..., "gts": ..., "score": ..., "step": 1, ...}
                      trainer.rollout_data_dir = DUMP; further keys are the reward function's extras

Step 0 of the log is the validation before training. A step that comes twice (after a resume) counts as it
came last. Answers stand in the dump in the order of the balanced batch, not group by group.
Source: verl, verl/utils/tracking.py (FileLogger), verl/trainer/ppo/ray_trainer.py (_dump_generations).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import DataError
from trimtab.record.importers.numbers import number_of, numbers_of
from trimtab.record.importers.source import Answer, Entry, Source

ROW = frozenset({"input", "output", "score"})
NOT_REWARDS = frozenset({*ROW, "gts", "step", "request_id", "uid", "index"})
DEEPEST = 4


def recognises(path: Path) -> bool:
    """Whether any file here begins like verl's log or dump."""
    return any(_kind(file) for file in _files(path))


def read(path: Path) -> Source:
    """Raises DataError where no file is a log or a dump of verl's."""
    kinds = {file: _kind(file) for file in _files(path)}
    logs = [file for file, kind in kinds.items() if kind == "log"]
    dumps = [file for file, kind in kinds.items() if kind == "dump" and file.stem.isdigit()]
    if not logs and not dumps:
        raise DataError(f"{path} holds no file like verl's file logger or its rollout dumps write")
    complaints, entries = list[str](), dict[int, Entry]()
    log = max(logs, key=lambda file: (file.stat().st_size, str(file)), default=None)
    complaints += [
        f"{file.name}: a second log; only {log.name} is imported" for file in logs if log and file != log
    ]
    for fields in _objects(log, complaints) if log else ():
        step, data = fields.get("step"), fields.get("data")
        if isinstance(step, int) and isinstance(data, Mapping):
            entries = {at: entry for at, entry in entries.items() if at < step}
            entries[step] = Entry(at=step, values=numbers_of(data))
        else:
            complaints.append(f"{log.name if log else ''}: a line without step or data is left out")
    held_out = {file.parent for file in dumps if file.parent.name.startswith("val")}
    if held_out < {file.parent for file in dumps}:
        dumps = [file for file in dumps if file.parent not in held_out]
    before = entries.pop(0, None)
    places = [*([log] if log else []), *dumps]
    return Source(
        kind="verl",
        framework="verl",
        entries=tuple(entries[at] for at in sorted(entries)),
        answers={int(file.stem): file for file in dumps},
        read=_answers,
        end=f"step {max(entries)}" if entries else "",
        complaints=tuple(complaints),
        files=tuple(str(file.relative_to(path) if path.is_dir() else file.name) for file in places),
        modified=max(file.stat().st_mtime for file in places),
        known={} if before is None else {"before_training": dict(before.values)},
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = (file for depth in range(DEEPEST) for file in path.glob("*/" * depth + "*.jsonl"))
    return sorted(file for file in found if file.is_file())


def _kind(file: Path) -> str:
    """What the first whole line says: ``log``, ``dump`` or nothing."""
    for fields in _objects(file, []):
        if "step" in fields and isinstance(fields.get("data"), Mapping):
            return "log"
        return "dump" if fields.keys() >= ROW else ""
    return ""


def _objects(file: Path, complaints: list[str]) -> Iterator[dict[str, Any]]:
    """The lines that are objects; the others are complained of."""
    with file.open("rb") as lines:
        for place, line in enumerate(lines, 1):
            try:
                fields = json.loads(line)
            except ValueError:
                if line.strip():
                    complaints.append(f"{file.name}, line {place}: no valid JSON, left out")
                continue
            if isinstance(fields, dict):
                yield fields


def _answers(file: Path, complaints: list[str]) -> tuple[Answer, ...]:
    return tuple(_answer(fields) for fields in _objects(file, complaints) if fields.keys() >= ROW)


def _answer(fields: Mapping[str, Any]) -> Answer:
    extras = numbers_of(fields, leave_out=NOT_REWARDS)
    score = number_of(fields["score"])
    gold = fields.get("gts")
    return Answer(
        prompt=str(fields["input"]),
        text=str(fields["output"]),
        reward=score,
        rewards=extras | ({} if score is None else {"score": score}),
        gold=gold,
    )
