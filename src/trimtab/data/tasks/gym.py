"""Questions of reasoning-gym: ``[data] task = "gym:NAME"``, with the dataset's own settings.

    [data]
    task = "gym:countdown"
    task_settings = { min_numbers = 3, max_numbers = 4 }
    [reward]
    graders = [{ name = "gym", options = { threshold = 1.0 } }]

Question i of a dataset comes from ``seed + i``, so that two datasets with seeds 1 and 2 share all questions
but one: here a hash of the question's text alone decides whether it is held out. A row keeps the whole entry
in its column ``gym``, so that the grader ``gym`` can ask the dataset's own scorer.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from trimtab.data.tasks.task import Split, question_id, split_of
from trimtab.errors import DataError, SettingError, nearest

PREFIX = "gym:"
DRAWING = Path(__file__).with_name("gym_drawing.py")
DRAWN_A_ROW = 20
"""Questions drawn for each row asked for, repeats and the other split included, before giving up."""
INSTALL = 'reasoning-gym is not installed; pip install "trimtab[gym]"'


def gym_rows(
    dataset: str, settings: Mapping[str, Any], split: Split, count: int, seed: int
) -> Generator[dict[str, Any], None, None]:
    """``count`` different rows ``{"id", "prompt", "answer"?, "gym"}`` of one split.

    The same arguments give the same rows, with one version of reasoning-gym. Datasets that know no single
    right answer give rows without one; their scorer judges all the same.

    Raises SettingError for what reasoning-gym does not know, DataError when there are too few questions.
    """
    seen: set[str] = set()
    given = 0
    with contextlib.closing(_entries(dataset, settings, seed, max(1, count) * DRAWN_A_ROW)) as entries:
        while given < count:
            entry = next(entries, None)
            if entry is None:
                raise DataError(
                    f"task {PREFIX + dataset!r} has about {given} different questions in its {split} split "
                    f"with these settings, {count} were asked for; ask for fewer"
                )
            question, answer = str(entry["question"]), entry["answer"]
            if question not in seen and split_of(question) == split:
                given += 1
                yield {
                    "id": question_id(dataset, question),
                    "prompt": question,
                    **({} if answer is None else {"answer": answer}),
                    "gym": {"dataset": dataset, "settings": dict(settings), **entry},
                }
            seen.add(question)


def _entries(
    dataset: str, settings: Mapping[str, Any], seed: int, size: int
) -> Generator[dict[str, Any], None, None]:
    """At most ``size`` entries from a process of their own, which ends when no more are wanted."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise SettingError(f"data.task {PREFIX + dataset!r}: {INSTALL}")
    clash = {"seed", "size"} & set(settings)
    if clash:
        raise SettingError(
            f"data.task_settings cannot set {clash.pop()!r}; data.seed and the counts of prompts do"
        )
    request = {"path": sys.path, "dataset": dataset, "settings": dict(settings), "seed": seed, "size": size}
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-P", str(DRAWING)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            text=True,
            encoding="utf-8",
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.close()
            for line in process.stdout:
                yield _entry(dataset, json.loads(line))
            if process.wait():
                complaints.seek(0)
                last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise DataError(f"task {PREFIX + dataset!r} cannot be drawn: {last}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _entry(dataset: str, told: dict[str, Any]) -> dict[str, Any]:
    if "unknown" in told:
        hint = nearest(dataset, told["unknown"])
        raise SettingError(f"data.task: reasoning-gym has no dataset {dataset!r}{hint}")
    if "refused" in told:
        raise SettingError(
            f"data.task_settings: {PREFIX + dataset} refuses these settings: {told['refused']}"
        )
    return told
