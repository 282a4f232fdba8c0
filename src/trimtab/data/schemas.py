"""The row formats of other tools, one function each: a raw row becomes a ``Content``.

    trl      prompt (text or messages), answer in ``answer``, ``solution`` or ``ground_truth``
    verl     prompt, data_source, reward_model.ground_truth
    skyrl    prompt, data_source, reward_spec.ground_truth
    gsm8k    question or prompt, answer = working, then ``#### result``
    plain    prompt, question or problem; answer, solution or ground_truth

A function that finds no prompt or no answer leaves it ``ABSENT``; the loader says so with the row's
number. Every column of the row stays available as ``meta``, but for the prompt's own.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.errors import SettingError, nearest

Row = Mapping[str, Any]


class Absent:
    """A row has no such column, or nothing in it."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a schema read in one row. ``prompt`` is text or a list of messages, unchecked."""

    prompt: Any
    answer: Any
    id: Any = None
    task: Any = None
    prompt_column: str = "prompt"


def column(row: Row, *names: str) -> Any:
    """The first of these columns that the row has something in; dots reach into nested columns."""
    for name in names:
        found: Any = row
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return ABSENT


def named(row: Row, *names: str) -> str:
    """The name of the first of these columns that the row has something in."""
    return next((name for name in names if row.get(name) is not None), names[0])


def trl(row: Row) -> Content:
    """TRL's prompt-only and prompt-completion rows: other columns go to the reward by name."""
    return Content(
        prompt=column(row, "prompt"),
        answer=column(row, "answer", "solution", "ground_truth"),
        id=column(row, "id"),
        task=column(row, "task", "data_source"),
    )


def verl(row: Row) -> Content:
    """verl's parquet rows."""
    return Content(
        prompt=column(row, "prompt"),
        answer=column(row, "answer", "reward_model.ground_truth"),
        id=column(row, "id"),
        task=column(row, "task", "data_source"),
    )


def skyrl(row: Row) -> Content:
    """SkyRL's parquet rows."""
    return Content(
        prompt=column(row, "prompt"),
        answer=column(row, "answer", "reward_spec.ground_truth", "reward_model.ground_truth"),
        id=column(row, "id"),
        task=column(row, "task", "data_source", "env_class"),
    )


def gsm8k(row: Row) -> Content:
    """GSM8K as published. A row without ``####`` has no answer; the working stays in ``meta``."""
    working = column(row, "answer")
    marked = isinstance(working, str) and "####" in working
    return Content(
        prompt=column(row, "question", "prompt"),
        answer=working.rpartition("####")[2].strip() if marked else ABSENT,
        id=column(row, "id"),
        task=column(row, "task", "data_source"),
        prompt_column=named(row, "question", "prompt"),
    )


def plain(row: Row) -> Content:
    """Rows of your own."""
    names = ("prompt", "question", "problem")
    return Content(
        prompt=column(row, *names),
        answer=column(row, "answer", "solution", "ground_truth"),
        id=column(row, "id"),
        task=column(row, "task", "data_source"),
        prompt_column=named(row, *names),
    )


SCHEMAS: dict[str, Callable[[Row], Content]] = {
    "trl": trl,
    "verl": verl,
    "skyrl": skyrl,
    "gsm8k": gsm8k,
    "plain": plain,
}


def choose_schema(name: str, rows: Sequence[Row]) -> tuple[str, str]:
    """The schema to read these rows with, and why: ``name``, or for ``auto`` by the columns.

    Raises SettingError for an unknown name.
    """
    if name != "auto":
        if name not in SCHEMAS:
            raise SettingError(f"data.schema cannot be {name!r}{nearest(name, [*SCHEMAS, 'auto'])}")
        return name, "data.schema says so"
    for schema, column_name in (("skyrl", "reward_spec"), ("verl", "reward_model")):
        if _any_has(rows, column_name) and _any_has(rows, "prompt"):
            return schema, f"there is a column {column_name!r}"
    asked = next((name for name in ("question", "prompt") if _any_has(rows, name)), None)
    if asked and any("####" in row["answer"] for row in rows if isinstance(row.get("answer"), str)):
        return "gsm8k", f"there is a column {asked!r}, and '####' in 'answer'"
    if any(isinstance(row.get("prompt"), list) for row in rows):
        return "trl", "'prompt' holds lists of messages"
    for name in ("solution", "ground_truth"):
        if _any_has(rows, "prompt") and _any_has(rows, name):
            return "trl", f"there are columns 'prompt' and {name!r}"
    return "plain", "no other schema's columns are there"


def renamed(row: Row, mapping: Mapping[str, str]) -> tuple[Row, list[str]]:
    """The row with each field of ``mapping`` (field -> column) filled from its column, and what lacks."""
    found = {field: column(row, source) for field, source in mapping.items()}
    missing = [mapping[field] for field, value in found.items() if value is ABSENT]
    return {**row, **{f: v for f, v in found.items() if v is not ABSENT}}, missing


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Every column name, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _any_has(rows: Sequence[Row], name: str) -> bool:
    return any(row.get(name) is not None for row in rows)
