"""Rows from files and from built-in tasks, each with the place it came from."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.data.report import Problems
from trimtab.data.tasks import TASKS
from trimtab.data.tasks.gym import PREFIX, gym_rows
from trimtab.data.tasks.task import Split
from trimtab.errors import DataError, SettingError, nearest


class Source(NamedTuple):
    """One raw row: the file or task it came from, its number there from 1, and its columns."""

    origin: str
    number: int
    row: dict[str, Any]


def read_files(paths: Sequence[str], problems: Problems) -> list[Source]:
    """All rows of these files in order; lines that are no JSON object go to ``problems``.

    Raises DataError where a file is missing or of an unknown kind.
    """
    rows: list[Source] = []
    for path in map(Path, paths):
        if not path.is_file():
            raise DataError(f"there is no file {path}; see data.files and data.held_out")
        read = _READERS.get(path.suffix)
        if read is None:
            raise DataError(
                f"{path}: files end in {', '.join(sorted(_READERS))}, not {path.suffix or 'nothing'!r}"
            )
        rows.extend(read(path, problems))
    return rows


def task_rows(
    name: str, split: Split, count: int, seed: int, settings: Mapping[str, Any] | None = None
) -> list[Source]:
    """``count`` rows of a task's split. Raises SettingError for an unknown task, or settings it has not."""
    task = TASKS.get(name)
    if name.startswith(PREFIX):
        rows = gym_rows(name.removeprefix(PREFIX), settings or {}, split, count, seed)
    elif task is None:
        raise SettingError(
            f"data.task: there is no task {name!r}{nearest(name, TASKS)}; tasks of reasoning-gym are gym:NAME"
        )
    elif settings:
        raise SettingError(f"data.task_settings are for tasks gym:NAME; {name!r} has none")
    else:
        rows = task.rows(split, count, seed)
    return [Source(name, number, {**row, "task": name}) for number, row in enumerate(rows, start=1)]


def _read_jsonl(path: Path, problems: Problems) -> Iterator[Source]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                line.encode()
                row = json.loads(line)
            except UnicodeEncodeError:
                problems.add("not UTF-8", path.name, number, "save the file as UTF-8")
                continue
            except (ValueError, RecursionError) as fault:
                problems.add(f"not JSON ({fault})", path.name, number, "write one JSON object a line")
                continue
            if isinstance(row, dict):
                yield Source(path.name, number, row)
            else:
                problems.add("not a JSON object", path.name, number, "write one JSON object a line")


def _read_json(path: Path, problems: Problems) -> Iterator[Source]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as fault:
        raise DataError(
            f"{path} is not valid JSON ({fault}); rows one a line belong in a .jsonl file"
        ) from None
    if not isinstance(rows, list):
        raise DataError(f"{path} must hold a list of rows; rows one a line belong in a .jsonl file")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            yield Source(path.name, number, row)
        else:
            problems.add("not a JSON object", path.name, number, "write a list of JSON objects")


def _read_parquet(path: Path, problems: Problems) -> Iterator[Source]:
    del problems  # a parquet file is readable as a whole or not at all
    import pyarrow.parquet  # heavy, and only needed here

    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError) as fault:
        raise DataError(f"{path} cannot be read as parquet: {fault}") from None
    for number, row in enumerate(table.to_pylist(), start=1):
        yield Source(path.name, number, row)


_READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".parquet": _read_parquet}
