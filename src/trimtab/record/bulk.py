"""Many lines of metrics.jsonl at once: Arrow parses them into columns, faster than one by one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.record.history import History

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 24
"""Bytes that are parsed together."""

WORTH = 1 << 20
"""Below these bytes lines are read one by one: the import of Arrow would cost more."""

LOOKED_AT = 64
"""Lines of a block that are asked for its keys."""

MOST_KEYS = 4096
"""A block with more keys is read line by line: a table of it could be much larger than its text."""


def append_block(history: History, block: bytes) -> bool:
    """Append the steps of whole lines to ``history``; False, and nothing done, where that takes care.

    It does where a line is no object, a value no finite number, a key in none of the lines looked at, or a
    step not behind the one before it. Then the lines must go through ``History.append`` one by one.
    """
    keys = _keys(block)
    if keys is None:
        return False
    table = _table(block, *keys, known=history.keys)
    if table is None:
        return False
    steps = table.column("step").to_numpy()
    times = table.column("time").to_numpy()
    last = history.last_step
    ordered = bool((np.diff(steps) > 0).all()) and (last is None or not len(steps) or int(steps[0]) > last)
    if not ordered or not np.isfinite(times).all():
        return False
    columns: dict[str, tuple[Any, Any]] = {}
    for name, column in _fields(table.column("metrics")):
        values = column.to_numpy(zero_copy_only=False)
        held = column.is_valid().to_numpy(zero_copy_only=False)
        if not np.isfinite(values[held]).all():
            return False
        columns[name] = (steps, values) if held.all() else (steps[held], values[held])
    missing = {}
    if "missing" in table.column_names:
        told = table.column("missing").to_pylist()
        missing = {
            step: {key: why for key, why in reasons.items() if why is not None}
            for step, reasons in zip(steps.tolist(), told, strict=True)
            if reasons
        }
    history.extend(steps, times, columns, missing)
    return True


def _keys(block: bytes) -> tuple[dict[str, None], dict[str, None]] | None:
    """Keys of metrics and of missing in some lines, in order; None where a line is not as expected."""
    metrics: dict[str, None] = {}
    missing: dict[str, None] = {}
    size = len(block)
    for place in range(LOOKED_AT):
        start = block.rfind(b"\n", 0, place * size // LOOKED_AT) + 1
        try:
            found = json.loads(block[start : block.index(b"\n", start)])
            metrics |= dict.fromkeys(found["metrics"])
            missing |= dict.fromkeys(found.get("missing") or ())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
    return (metrics, missing) if len(metrics) + len(missing) <= MOST_KEYS else None


def _table(
    block: bytes, metrics: dict[str, None], missing: dict[str, None], known: list[str]
) -> pa.Table | None:
    """The lines as a table; None where one of them has other fields or types, or lacks step or time."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    fields = [(key, pa.float64()) for key in dict.fromkeys([*metrics, *known])]
    schema = [("step", pa.int64()), ("time", pa.float64()), ("metrics", pa.struct(fields))]
    if missing:
        schema.append(("missing", pa.struct([(key, pa.string()) for key in missing])))
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(block_size=1 << 22),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(schema), unexpected_field_behavior="error"
            ),
        )
    except (pa.ArrowException, UnicodeError):
        return None
    lacking = any(table.column(name).null_count for name in ("step", "time", "metrics"))
    return None if lacking or table.num_rows != block.count(b"\n") else table


def _fields(column: pa.ChunkedArray) -> list[tuple[str, pa.Array]]:
    """The members of a struct column that hold any value."""
    import pyarrow as pa

    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks)
    names = [joined.type.field(place).name for place in range(joined.type.num_fields)]
    found = [(name, joined.field(place)) for place, name in enumerate(names)]
    return [(name, values) for name, values in found if values.null_count < len(values)]
