"""The columns of rollouts/NNNNNN.parquet: name, type and meaning, once, for writer, reader and docs."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class ColumnSpec(NamedTuple):
    """One column of the file."""

    name: str
    type: pa.DataType
    meaning: str


SPAN = pa.struct([("version", pa.int64()), ("start", pa.int32()), ("stop", pa.int32())])

ROW_COLUMNS = (
    ColumnSpec("step", pa.int32(), "step whose decision this row records"),
    ColumnSpec("group", pa.string(), "key of the group: prompt id # draw"),
    ColumnSpec("prompt_id", pa.string(), "id of the prompt, stable over runs"),
    ColumnSpec("draw", pa.int32(), "how often the run had drawn the prompt before"),
    ColumnSpec("index", pa.int32(), "place in the group, from 0"),
    ColumnSpec("task", pa.string(), "task of the prompt"),
    ColumnSpec("kept", pa.bool_(), "trained on in this step"),
    ColumnSpec("reason", pa.string(), "why the group was kept or dropped"),
    ColumnSpec("carried", pa.bool_(), "sampled by an earlier step"),
    ColumnSpec("flag", pa.string(), "why the group is flagged; null where it is not"),
    ColumnSpec("prompt", pa.string(), "the prompt as rendered"),
    ColumnSpec("answer", pa.string(), "the gold answer, as JSON"),
    ColumnSpec("text", pa.string(), "the answer's text, derived from its tokens"),
    ColumnSpec(
        "finish", pa.string(), "how sampling ended: stop, length, abort; null where an import does not know"
    ),
    ColumnSpec(
        "length", pa.int32(), "response tokens, the end token included; an estimate in an imported run"
    ),
    ColumnSpec("seed", pa.int64(), "the rollout's own seed; null in an imported run"),
    ColumnSpec(
        "versions", pa.list_(SPAN), "policy versions that sampled it, by token span; null in an imported run"
    ),
    ColumnSpec(
        "grade",
        pa.string(),
        "grade state: right, wrong, partial, not_gradable, timeout, grader_failed; null: a reward alone",
    ),
    ColumnSpec("value", pa.float64(), "grade in [0, 1]; null where not graded"),
    ColumnSpec("parts", pa.map_(pa.string(), pa.float64()), "each grader's own value"),
    ColumnSpec("detail", pa.string(), "what the grader said"),
    ColumnSpec("reward", pa.float64(), "reward with shaping; null where not graded or not trained on"),
    ColumnSpec("shaping", pa.float64(), "length part of the reward; null where there is no reward"),
    ColumnSpec("update", pa.int32(), "number of the update that last used it; null where none did"),
    ColumnSpec("trained_tokens", pa.int32(), "tokens in that update's loss; null where none"),
    ColumnSpec("advantage", pa.float64(), "mean advantage over its trained tokens; null where it has none"),
    ColumnSpec("weight", pa.float64(), "sum of its tokens' weights in that update; null where none"),
)

SAMPLED_COLUMNS = (
    ColumnSpec("prompt_token_ids", pa.list_(pa.int32()), "the prompt's tokens"),
    ColumnSpec(
        "token_ids", pa.list_(pa.int32()), "the answer's tokens; every list below has one entry for each"
    ),
    ColumnSpec("mask", pa.list_(pa.bool_()), "the policy's own token"),
    ColumnSpec("sampler_logprobs", pa.list_(pa.float32()), "log-probability as sampled"),
)

TRAINED_COLUMNS = (
    ColumnSpec("trained", pa.list_(pa.bool_()), "in the loss of that update"),
    ColumnSpec(
        "old_logprobs",
        pa.list_(pa.float32()),
        "the ratio's denominator: before the step's first update, or the sampler's",
    ),
    ColumnSpec("ref_logprobs", pa.list_(pa.float32()), "by the reference model"),
    ColumnSpec("new_logprobs", pa.list_(pa.float32()), "by the weights that the update started from"),
    ColumnSpec("ratios", pa.list_(pa.float32()), "ratio as the surrogate used it"),
    ColumnSpec("gates", pa.list_(pa.float32()), "share of the gradient let through"),
    ColumnSpec("advantages", pa.list_(pa.float64()), "advantage"),
    ColumnSpec("weights", pa.list_(pa.float64()), "share of the update's loss"),
    ColumnSpec("entropies", pa.list_(pa.float32()), "entropy of the policy at the token, nats"),
    ColumnSpec("values", pa.list_(pa.float32()), "the critic's value when advantages were made"),
    ColumnSpec("returns", pa.list_(pa.float32()), "the critic's target"),
)
"""Null in a row without an update, and where the algorithm has no such thing."""

COLUMNS = (*ROW_COLUMNS, *SAMPLED_COLUMNS, *TRAINED_COLUMNS)

SCHEMA = pa.schema(
    [pa.field(column.name, column.type) for column in COLUMNS], metadata={"trimtab.schema": "1"}
)


def as_markdown() -> str:
    """The columns as the table of docs/record.md."""
    lines = ["| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{c.name}` | {_words(c.type)} | {c.meaning} |" for c in COLUMNS]
    return "\n".join(lines) + "\n"


def _words(kind: pa.DataType) -> str:
    if isinstance(kind, pa.MapType):
        return f"{_words(kind.key_type)} to {_words(kind.item_type)}"
    if isinstance(kind, pa.ListType):
        return f"list of {_words(kind.value_type)}"
    if isinstance(kind, pa.StructType):
        return "(" + ", ".join(field.name for field in kind) + ")"
    return {"double": "float64", "float": "float32", "string": "text"}.get(str(kind), str(kind))
