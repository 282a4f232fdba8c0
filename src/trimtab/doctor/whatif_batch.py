"""Recorded rollouts of an update as the batch that an algorithm sees, and as what the run did with it.

The record keeps values per token for a part of the groups, but a row for every rollout: its update, its
trained tokens, its grade and its group. That is all an aggregate reads, so weights are those of the whole
update and not of the recorded part, as long as the rows of all rollouts are there.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.record.rows import RolloutRow
from trimtab.types import Batch, Finish

NEEDED = ("trained", "old_logprobs", "new_logprobs", "advantages")
"""Columns per token without which a rollout cannot be looked at again."""


NO_TOKENS = (
    "no rollout of this step has values per token, so nothing can be weighed anew; record.tokens says for "
    "how many groups they are kept (imported runs have none)"
)


def has_tokens(row: RolloutRow) -> bool:
    """Whether an update used the rollout and its values per token were kept."""
    if row.update is None or row.tokens is None:
        return False
    return all(getattr(row.tokens, name) is not None for name in NEEDED)


def graded_rows(rollouts: Sequence[RolloutRow]) -> list[RolloutRow]:
    """The rows that were in the step's batch: of kept groups, with a grade. Others never enter it."""
    return [row for row in rollouts if row.kept and row.value is not None]


def batch_of(
    rows: Sequence[RolloutRow], *, overlong_filter: bool, advantages_S: Tensor | None = None
) -> Batch:
    """The rows as a batch with ``old_logprobs_T``, ``new_logprobs_T`` and ``advantages_T``.

    A rollout without values per token has its trained tokens only, each with NaN in these columns; it is
    there to be counted. ``overlong_filter`` takes the trained tokens from truncated answers.
    advantages_S: each answer's advantage; None takes the recorded ones, token by token.
    """
    parts = [_columns(row) for row in rows]
    lengths_S = torch.tensor([len(part["trained"]) for part in parts], dtype=torch.int64)
    truncated_S = torch.tensor([row.finish is not Finish.STOP for row in rows], dtype=torch.bool)
    seq_T = torch.repeat_interleave(torch.arange(len(rows)), lengths_S)
    mask_T = _joined(parts, "trained", torch.bool)
    if overlong_filter:
        mask_T = mask_T & ~truncated_S[seq_T]
    groups: dict[str, int] = {}
    group_S = [groups.setdefault(row.group, len(groups)) for row in rows]
    given_T = _joined(parts, "advantages", torch.float64) if advantages_S is None else advantages_S[seq_T]
    return Batch(
        prompts_P=tuple(torch.empty(0, dtype=torch.int64) for _ in groups),
        token_ids_T=torch.zeros(len(seq_T), dtype=torch.int64),
        seq_T=seq_T,
        mask_T=mask_T,
        rollout_logprobs_T=torch.full((len(seq_T),), torch.nan),
        group_S=torch.tensor(group_S, dtype=torch.int64),
        rewards_S=torch.full((len(rows),), torch.nan, dtype=torch.float64),
        outcomes_S=torch.tensor([row.value for row in rows], dtype=torch.float64),
        truncated_S=truncated_S,
        version_S=torch.zeros(len(rows), dtype=torch.int64),
        keys_S=tuple(row.key for row in rows),
        columns={
            "old_logprobs_T": _joined(parts, "old_logprobs", torch.float32),
            "new_logprobs_T": _joined(parts, "new_logprobs", torch.float32),
            "advantages_T": torch.where(mask_T, given_T, 0.0),
        },
    )


def _columns(row: RolloutRow) -> Mapping[str, NDArray[np.generic]]:
    if has_tokens(row):
        return {name: getattr(row.tokens, name) for name in NEEDED}
    trained = row.trained_tokens or 0
    unknown = np.full(trained, np.nan)
    return {"trained": np.ones(trained, dtype=np.bool_)} | dict.fromkeys(NEEDED[1:], unknown)


def _joined(parts: Sequence[Mapping[str, NDArray[np.generic]]], name: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor(np.concatenate([part[name] for part in parts]), dtype=dtype)
