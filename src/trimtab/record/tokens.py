"""Values per token of the chosen rollouts, as Arrow lists made from whole arrays."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from trimtab.record.schema import SAMPLED_COLUMNS, TRAINED_COLUMNS
from trimtab.types import Batch, Rollout, Trace

Array = NDArray[Any]


class UpdateEntry(NamedTuple):
    """One update as the record sees it: its number in the run, the batch it saw, what its objective saw."""

    number: int
    batch: Batch
    trace: Trace


class Use(NamedTuple):
    """Where a rollout was used: the update's place in the step, the sequence's place in its batch."""

    update: int
    sequence: int


class SequenceNumbers(NamedTuple):
    """A sequence in an update: trained tokens, their mean advantage, the sum of their weights."""

    trained: int
    advantage: float | None
    weight: float | None


SOURCES: dict[str, Callable[[UpdateEntry], Tensor | None]] = {
    "trained": lambda update: update.batch.mask_T,
    "old_logprobs": lambda update: update.batch.columns.get("old_logprobs_T"),
    "ref_logprobs": lambda update: update.batch.columns.get("ref_logprobs_T"),
    "new_logprobs": lambda update: update.trace.logprobs_T,
    "ratios": lambda update: update.trace.ratio_T,
    "gates": lambda update: update.trace.gate_T,
    "advantages": lambda update: update.batch.columns.get("advantages_T"),
    "weights": lambda update: update.batch.columns.get("weights_T"),
    "entropies": lambda update: update.trace.entropy_T,
    "values": lambda update: update.batch.columns.get("values_T"),
    "returns": lambda update: update.batch.columns.get("returns_T"),
}
"""Where each column of ``schema.TRAINED_COLUMNS`` comes from."""


def sequence_numbers(update: UpdateEntry) -> list[SequenceNumbers]:
    """For each sequence of the update's batch."""
    batch = update.batch
    mask_T = _array(batch.mask_T)
    seq_N = _array(batch.seq_T)[mask_T]

    def total(column: Tensor | None) -> Array | None:
        if column is None:
            return None
        return np.bincount(
            seq_N, weights=_array(column)[mask_T].astype(np.float64), minlength=batch.num_sequences
        )

    counts = np.bincount(seq_N, minlength=batch.num_sequences)
    advantages, weights = total(batch.columns.get("advantages_T")), total(batch.columns.get("weights_T"))
    return [
        SequenceNumbers(
            int(n),
            None if advantages is None or not n else float(advantages[s] / n),
            None if weights is None else float(weights[s]),
        )
        for s, n in enumerate(counts)
    ]


class TokenLists:
    """The list columns of a step. A row that is not chosen has null in all of them."""

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        prompts: Sequence[Array],
        chosen: Sequence[bool],
        uses: Sequence[Use | None],
        updates: Sequence[UpdateEntry],
    ) -> None:
        self._rollouts = rollouts
        self._prompts = prompts
        self._chosen = np.array(chosen, dtype=np.bool_)
        self._uses = uses
        self._updates = updates
        self._lengths = np.array([rollout.length for rollout in rollouts], dtype=np.int64)

    def arrays(self) -> dict[str, pa.Array]:
        return self._sampled() | self._trained()

    def _sampled(self) -> dict[str, pa.Array]:
        picked = [rollout for rollout, chosen in zip(self._rollouts, self._chosen, strict=True) if chosen]
        prompts = [prompt for prompt, chosen in zip(self._prompts, self._chosen, strict=True) if chosen]
        prompt_lengths = np.array([len(prompt) for prompt in self._prompts], dtype=np.int64)
        values = {
            "prompt_token_ids": _joined(prompts),
            "token_ids": _joined([rollout.token_ids for rollout in picked]),
            "mask": _joined([rollout.mask for rollout in picked]),
            "sampler_logprobs": _joined([rollout.logprobs for rollout in picked]),
        }
        lengths = {"prompt_token_ids": prompt_lengths}
        return {
            c.name: _lists(values[c.name], lengths.get(c.name, self._lengths), self._chosen, c.type)
            for c in SAMPLED_COLUMNS
        }

    def _trained(self) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        known: dict[tuple[bool, ...], tuple[Array, Array]] = {}
        for column in TRAINED_COLUMNS:
            tensors = [SOURCES[column.name](update) for update in self._updates]
            available = tuple(tensor is not None for tensor in tensors)
            if available not in known:
                shown = self._shown(available)
                known[available] = shown, self._places(shown, available)
            shown, places = known[available]
            whole = _joined([_array(tensor) for tensor in tensors if tensor is not None])
            found[column.name] = _lists(whole[places], self._lengths, shown, column.type)
        return found

    def _shown(self, available: Sequence[bool]) -> Array:
        """Rows that are chosen and were last used by an update that has the column."""
        has = np.array([use is not None and available[use.update] for use in self._uses], dtype=np.bool_)
        return self._chosen & has

    def _places(self, shown: Array, available: Sequence[bool]) -> Array:
        """Index of every token of the shown rows in the available columns, one after another."""
        base, ends = 0, list[Array]()
        for update, there in zip(self._updates, available, strict=True):
            ends.append(base + np.cumsum(_array(update.batch.lengths_S)))
            base += update.batch.num_tokens if there else 0
        rows = np.flatnonzero(shown)
        uses = [use for row in rows.tolist() if (use := self._uses[row]) is not None]
        lengths = self._lengths[rows]
        starts = np.array([ends[use.update][use.sequence] for use in uses], dtype=np.int64) - lengths
        before = np.cumsum(lengths) - lengths
        return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def _lists(values: Array, lengths: Array, shown: Array, kind: pa.DataType) -> pa.Array:
    """A list a row; rows that are not shown are null and have no values."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(np.where(shown, lengths, 0), out=offsets[1:])
    flat = pa.array(values, type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=kind, mask=pa.array(~shown))


def _joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.bool_)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()
