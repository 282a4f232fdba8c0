"""Scored groups to disk and back, bit for bit and without pickle: what a checkpoint carries over.

A folder with two files: ``groups.json`` (everything but arrays) and ``arrays.npz`` (the arrays, by the
names that groups.json gives them).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import DataError
from trimtab.types import (
    Draw,
    Finish,
    Grade,
    GradeState,
    Group,
    Prompt,
    Rollout,
    ScoredGroup,
    VersionSpan,
)

VERSION = 1
Arrays = dict[str, NDArray[Any]]


def save_groups(folder: Path, groups: Sequence[ScoredGroup]) -> None:
    """Write the groups, in order. Raises DataError for a prompt whose answer, messages or meta hold
    anything but None, booleans, numbers, text, lists, tuples and mappings with text keys.
    """
    arrays: Arrays = {}
    stored = [_pack_group(scored, f"{place}", arrays) for place, scored in enumerate(groups)]
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": VERSION, "groups": stored}, allow_nan=False)
    (folder / "groups.json").write_text(text, encoding="utf-8")
    with (folder / "arrays.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_groups(folder: Path) -> list[ScoredGroup]:
    """The groups that ``save_groups`` wrote, equal in every bit."""
    stored = json.loads((folder / "groups.json").read_text(encoding="utf-8"))
    if stored["version"] != VERSION:
        raise DataError(
            f"{folder} holds groups of format {stored['version']}, this trimtab reads {VERSION}; "
            "resume with the version that wrote the checkpoint"
        )
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        return [_unpack_group(fields, f"{place}", arrays) for place, fields in enumerate(stored["groups"])]


def _pack_group(scored: ScoredGroup, name: str, arrays: Arrays) -> dict[str, Any]:
    prompt = scored.group.prompt
    arrays[f"{name}/prompt"] = prompt.token_ids
    for place, rollout in enumerate(scored.group.rollouts):
        arrays[f"{name}/{place}/token_ids"] = rollout.token_ids
        arrays[f"{name}/{place}/logprobs"] = rollout.logprobs
        arrays[f"{name}/{place}/mask"] = rollout.mask
    return {
        "draw": scored.group.draw.number,
        "prompt": {
            "id": prompt.id,
            "text": prompt.text,
            "task": prompt.task,
            "answer": _exact(prompt.answer, prompt.id),
            "messages": _exact(prompt.messages, prompt.id),
            "meta": _exact(dict(prompt.meta), prompt.id),
        },
        "rollouts": [_pack_rollout(rollout) for rollout in scored.group.rollouts],
        "grades": [_pack_grade(grade, prompt.id) for grade in scored.grades],
    }


def _pack_rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        "prompt_id": rollout.prompt_id,
        "draw": rollout.draw,
        "index": rollout.index,
        "finish": str(rollout.finish),
        "versions": [list(span) for span in rollout.versions],
        "seed": rollout.seed,
        "text": rollout.text,
    }


def _pack_grade(grade: Grade, prompt_id: str) -> dict[str, Any]:
    return {
        "state": str(grade.state),
        "value": grade.value,
        "parts": _exact(dict(grade.parts), prompt_id),
        "detail": grade.detail,
    }


def _unpack_group(fields: Mapping[str, Any], name: str, arrays: Mapping[str, NDArray[Any]]) -> ScoredGroup:
    stored = fields["prompt"]
    prompt = Prompt(
        id=stored["id"],
        token_ids=arrays[f"{name}/prompt"],
        text=stored["text"],
        task=stored["task"],
        answer=_restored(stored["answer"]),
        messages=_restored(stored["messages"]),
        meta=_restored(stored["meta"]),
    )
    rollouts = tuple(
        Rollout(
            token_ids=arrays[f"{name}/{place}/token_ids"],
            logprobs=arrays[f"{name}/{place}/logprobs"],
            mask=arrays[f"{name}/{place}/mask"],
            finish=Finish(own["finish"]),
            versions=tuple(VersionSpan(*span) for span in own["versions"]),
            **{key: own[key] for key in ("prompt_id", "draw", "index", "seed", "text")},
        )
        for place, own in enumerate(fields["rollouts"])
    )
    grades = tuple(
        Grade(
            state=GradeState(own["state"]),
            value=own["value"],
            parts=_restored(own["parts"]),
            detail=own["detail"],
        )
        for own in fields["grades"]
    )
    group = Group(draw=Draw(prompt, fields["draw"]), rollouts=rollouts)
    return ScoredGroup(group=group, grades=grades)


def _exact(value: object, prompt_id: str) -> Any:
    """JSON that tells tuples from lists, and words from the numbers JSON does not know."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, _exact(value.item(), prompt_id)]}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [_exact(item, prompt_id) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_exact(item, prompt_id) for item in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _exact(item, prompt_id) for key, item in value.items()}}
    raise DataError(
        f"prompt {prompt_id!r} holds a {type(value).__name__} that a checkpoint cannot keep; "
        "use text, numbers, lists, tuples or mappings with text keys in answer and meta"
    )


def _restored(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_restored(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    [(kind, inner)] = stored.items()
    if kind == "float":
        return float(inner)
    if kind == "scalar":
        return np.dtype(inner[0]).type(_restored(inner[1]))
    if kind == "tuple":
        return tuple(_restored(item) for item in inner)
    return {key: _restored(item) for key, item in inner.items()}
