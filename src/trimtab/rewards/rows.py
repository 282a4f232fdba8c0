"""Grading outside a run: a row ``{"answer", "response"}`` as a group of one answer, and rows by the thousand.

Graders see it as in a run, but for the tokens, which are not there. Other columns of the row are the prompt's
columns; ``prompt`` (text or messages), ``id`` and ``task`` are what they are in a data file.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from trimtab.errors import DataError
from trimtab.rewards.rubric import Rubric
from trimtab.types import Draw, Finish, Grade, Group, Prompt, Rollout, VersionSpan

AT_ONCE = 64
"""Rows that are graded side by side."""

_OWN = ("prompt", "answer", "response", "id", "task")


def group_of(row: Mapping[str, Any], number: int = 1) -> Group:
    """The row as a prompt and its one answer; ``number`` names it where it has no id.

    Raises DataError when there is no response, or the prompt is neither text nor messages.
    """
    response, written = row.get("response"), row.get("prompt", "")
    if not isinstance(response, str):
        raise DataError(f"the row needs a response as text, got {response!r}")
    messages = None
    if isinstance(written, list):
        messages = tuple(written)
        if not all(isinstance(m, dict) and _is_text(m.get("role"), m.get("content")) for m in messages):
            raise DataError("the row's prompt must be text or a list of {role, content} messages with text")
        written = "\n".join(m["content"] for m in messages)
    if not isinstance(written, str):
        raise DataError(f"the row's prompt must be text or messages, got {type(written).__name__}")
    name = str(row.get("id", f"row-{number}"))
    nothing = np.zeros(0, dtype=np.int64)
    prompt = Prompt(
        id=name,
        token_ids=nothing,
        text=written,
        task=str(row.get("task", "rows")),
        answer=row.get("answer"),
        messages=messages,
        meta={key: value for key, value in row.items() if key not in _OWN},
    )
    rollout = Rollout(
        prompt_id=name,
        draw=0,
        index=0,
        token_ids=nothing,
        logprobs=np.zeros(0, dtype=np.float32),
        mask=np.zeros(0, dtype=np.bool_),
        finish=Finish.STOP,
        versions=(VersionSpan(0, 0, 0),),
        seed=0,
        text=response,
    )
    return Group(draw=Draw(prompt, 0), rollouts=(rollout,))


async def grade_rows(rubric: Rubric, read: Iterable[Group | DataError]) -> AsyncIterator[Grade | DataError]:
    """The grades in order, each as soon as it and all before it are there; a fault keeps its place.

    At most ``AT_ONCE`` rows are read ahead, so that they may come from an endless file.
    """
    running: list[asyncio.Task[Grade | DataError]] = []
    for group in read:
        running.append(asyncio.create_task(_graded(rubric, group)))
        if len(running) >= AT_ONCE:
            yield await running.pop(0)
    while running:
        yield await running.pop(0)


def read_lines(lines: Iterable[str], origin: str) -> Iterator[Group | DataError]:
    """Each line of a JSONL file as a group, or the fault that names the line; empty lines are left out."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield group_of(row_of(line), number)
        except DataError as fault:
            yield DataError(f"{origin} line {number}: {fault}")


def open_rows(path: Path) -> TextIO:
    """A JSONL file as text; bytes that are not UTF-8 become what ``row_of`` refuses, so that others count.

    Raises DataError when it cannot be opened.
    """
    try:
        return path.open(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as fault:
        raise DataError(f"{path} cannot be read: {fault.strerror}") from None


def row_of(line: str) -> dict[str, Any]:
    """The object of one line. Raises DataError where there is none."""
    try:
        line.encode()
        row = json.loads(line)
    except UnicodeEncodeError:
        raise DataError("not UTF-8") from None
    except (ValueError, RecursionError) as fault:
        raise DataError(f"not JSON ({fault})") from None
    if not isinstance(row, dict):
        raise DataError("not a JSON object")
    return row


def _is_text(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


async def _graded(rubric: Rubric, group: Group | DataError) -> Grade | DataError:
    return group if isinstance(group, DataError) else (await rubric.grade(group)).grades[0]
