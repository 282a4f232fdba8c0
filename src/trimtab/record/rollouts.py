"""Writes the rollouts of a step: a row a rollout, and values per token for a part of them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.record.config import RecordConfig, choose
from trimtab.record.layout import write_aside
from trimtab.record.schema import ROW_COLUMNS, SCHEMA
from trimtab.record.tokens import TokenLists, UpdateEntry, Use, sequence_numbers
from trimtab.types import Grade, RewardedGroup, Rollout, ScoredGroup

__all__ = ["GroupEntry", "UpdateEntry", "write_rollouts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupEntry:
    """A group whose fate a step decided. ``kept`` means: trained on in this step; then it has rewards."""

    scored: ScoredGroup
    kept: bool
    reason: str
    carried: bool = False
    rewarded: RewardedGroup | None = None


class _Row(NamedTuple):
    entry: GroupEntry
    rollout: Rollout
    grade: Grade
    place: int


def write_rollouts(
    path: Path,
    step: int,
    groups: Sequence[GroupEntry],
    updates: Sequence[UpdateEntry],
    flags: Mapping[str, str],
    config: RecordConfig,
) -> None:
    """One Parquet file, whole or not at all. Flagged groups are always in it, with their tokens."""
    kept = [entry.scored.group.key for entry in groups if entry.kept]
    shown = choose(config.rollouts, (entry.scored.group.key for entry in groups), step) | set(flags)
    detailed = choose(config.tokens, [key for key in kept if key in shown], step) | set(flags)
    rows = [
        _Row(entry, rollout, grade, place)
        for entry in groups
        if entry.scored.group.key in shown
        for place, (rollout, grade) in enumerate(
            zip(entry.scored.group.rollouts, entry.scored.grades, strict=True)
        )
    ]
    table = _table(step, rows, updates, flags, detailed)
    write_aside(path, lambda aside: pq.write_table(table, aside, compression="zstd"))


def _table(
    step: int,
    rows: Sequence[_Row],
    updates: Sequence[UpdateEntry],
    flags: Mapping[str, str],
    detailed: set[str],
) -> pa.Table:
    uses = _last_uses(updates)
    used = [uses.get(row.rollout.key) if row.entry.kept else None for row in rows]
    columns = _row_columns(step, rows, flags) | _use_columns(used, updates)
    arrays = {c.name: _array(columns[c.name], c.type) for c in ROW_COLUMNS}
    with_tokens = [row.entry.scored.group.key in detailed for row in rows]
    prompts = [row.entry.scored.group.prompt.token_ids for row in rows]
    lists = TokenLists([row.rollout for row in rows], prompts, with_tokens, used, updates)
    return pa.table(arrays | lists.arrays(), schema=SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column. Half a surrogate pair, as a grader's words may hold one, becomes a question mark."""
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in values], type=kind)


def _last_uses(updates: Sequence[UpdateEntry]) -> dict[str, Use]:
    """Rollout key -> the last update that held it, and its place there."""
    return {
        key: Use(which, sequence)
        for which, update in enumerate(updates)
        for sequence, key in enumerate(update.batch.keys_S)
    }


def _row_columns(step: int, rows: Sequence[_Row], flags: Mapping[str, str]) -> dict[str, list[Any]]:
    groups = [row.entry.scored.group for row in rows]
    rollouts, grades = [row.rollout for row in rows], [row.grade for row in rows]
    rewards = [_reward(row) for row in rows]
    distinct = dict.fromkeys(group.prompt for group in groups)
    answers = {prompt: answer_text(prompt.answer) for prompt in distinct}
    return {
        "step": [step] * len(rows),
        "group": [group.key for group in groups],
        "prompt_id": [rollout.prompt_id for rollout in rollouts],
        "draw": [rollout.draw for rollout in rollouts],
        "index": [rollout.index for rollout in rollouts],
        "task": [group.prompt.task for group in groups],
        "kept": [row.entry.kept for row in rows],
        "reason": [str(row.entry.reason) for row in rows],
        "carried": [row.entry.carried for row in rows],
        "flag": [flags.get(group.key) for group in groups],
        "prompt": [group.prompt.text for group in groups],
        "answer": [answers[group.prompt] for group in groups],
        "text": [rollout.text for rollout in rollouts],
        "finish": [str(rollout.finish) for rollout in rollouts],
        "length": [rollout.length for rollout in rollouts],
        "seed": [rollout.seed for rollout in rollouts],
        "versions": [[span._asdict() for span in rollout.versions] for rollout in rollouts],
        "grade": [str(grade.state) for grade in grades],
        "value": [grade.value for grade in grades],
        "parts": [list(grade.parts.items()) for grade in grades],
        "detail": [grade.detail for grade in grades],
        "reward": [reward for reward, _ in rewards],
        "shaping": [shaping for _, shaping in rewards],
    }


def _use_columns(used: Sequence[Use | None], updates: Sequence[UpdateEntry]) -> dict[str, list[Any]]:
    numbers = [sequence_numbers(update) for update in updates]
    found = [None if use is None else numbers[use.update][use.sequence] for use in used]
    return {
        "update": [None if use is None else updates[use.update].number for use in used],
        "trained_tokens": [None if n is None else n.trained for n in found],
        "advantage": [None if n is None else n.advantage for n in found],
        "weight": [None if n is None else n.weight for n in found],
    }


def _reward(row: _Row) -> tuple[float | None, float | None]:
    rewarded = row.entry.rewarded
    if rewarded is None or np.isnan(rewarded.rewards[row.place]):
        return None, None
    return float(rewarded.rewards[row.place]), float(rewarded.shaping[row.place])


def answer_text(answer: object) -> str:
    """A gold answer as JSON; what JSON does not know is shown as Python shows it."""
    return json.dumps(answer, ensure_ascii=False, default=repr)
