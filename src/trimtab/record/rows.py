"""Reads the rollouts of a step back as typed values."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trimtab.errors import DataError
from trimtab.record.schema import ROW_COLUMNS, SAMPLED_COLUMNS, TRAINED_COLUMNS
from trimtab.types import Finish, GradeState, VersionSpan

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenRow:
    """A rollout's values per token, one array entry for each of ``token_ids``; None: no such thing.

    All from ``trained`` on are None where no update used the rollout. See ``schema`` for the meanings.
    """

    prompt_token_ids: Array
    token_ids: Array
    mask: Array
    sampler_logprobs: Array
    trained: Array | None
    old_logprobs: Array | None
    ref_logprobs: Array | None
    new_logprobs: Array | None
    ratios: Array | None
    gates: Array | None
    advantages: Array | None
    weights: Array | None
    entropies: Array | None
    values: Array | None
    returns: Array | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutRow:
    """One recorded rollout; the fields are the columns of ``schema.ROW_COLUMNS``.

    ``finish``, ``seed`` and ``grade`` are None, ``versions`` empty, only where an import does not know them.
    """

    step: int
    group: str
    prompt_id: str
    draw: int
    index: int
    task: str
    kept: bool
    reason: str
    carried: bool
    flag: str | None
    prompt: str
    answer: Any
    text: str
    finish: Finish | None
    length: int
    seed: int | None
    versions: tuple[VersionSpan, ...]
    grade: GradeState | None
    value: float | None
    parts: Mapping[str, float]
    detail: str
    reward: float | None
    shaping: float | None
    update: int | None
    trained_tokens: int | None
    advantage: float | None
    weight: float | None
    tokens: TokenRow | None

    @property
    def key(self) -> str:
        return f"{self.group}/{self.index}"


def read_rollouts(path: Path) -> list[RolloutRow]:
    """All rows of a file, in the order they were written. Raises DataError where it cannot be read."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise DataError(f"there is no {path}: this step's rollouts were not recorded") from None
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None
    try:
        plain_rows = table.select([column.name for column in ROW_COLUMNS]).to_pylist()
        tokens = _token_rows(table)
        return [RolloutRow(**_typed(row), tokens=own) for row, own in zip(plain_rows, tokens, strict=True)]
    except (ValueError, TypeError, KeyError) as error:  # no run of ours: a column or a word is another
        raise DataError(f"{path} does not hold rollouts as trimtab writes them: {error}") from None


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "answer": None if row["answer"] is None else json.loads(row["answer"]),
        "finish": None if row["finish"] is None else Finish(row["finish"]),
        "versions": tuple(VersionSpan(**span) for span in row["versions"] or ()),
        "grade": None if row["grade"] is None else GradeState(row["grade"]),
        "parts": dict(row["parts"]),
    }


def _token_rows(table: pa.Table) -> list[TokenRow | None]:
    names = [field.name for field in fields(TokenRow)]
    assert names == [column.name for column in (*SAMPLED_COLUMNS, *TRAINED_COLUMNS)]
    columns = {name: _split(table.column(name).combine_chunks()) for name in names}
    return [
        None
        if columns["token_ids"][row] is None
        else TokenRow(**{name: columns[name][row] for name in names})
        for row in range(table.num_rows)
    ]


def _split(lists: pa.ListArray) -> list[Any]:
    """Each row's values as one array; None where the list is null."""
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    values = lists.values.to_numpy(zero_copy_only=False)
    offsets = lists.offsets.to_numpy()
    return [values[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(len(lists))]
