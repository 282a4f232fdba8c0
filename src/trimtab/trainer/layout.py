"""Where the packed tokens of a batch stand in the rows that a model reads.

Rows are right-padded. The earlier positions of a causal model cannot see what stands after them, and
its positions count from a row's first token by themselves: so these rows need neither an attention
mask nor position ids, whatever the architecture. Tokens are found by length and never by their id.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import DataError
from trimtab.ops.logprobs import predecessors
from trimtab.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """One micro-batch as a model reads it.

    Shapes: ``input_ids_BL`` [B, L] int64. ``state_T`` [T] and ``last_S`` [S] point into the B * L hidden
    states in row order: the state that predicts token t, and the state after the last token of a
    sequence. ``tokens`` counts the real tokens of the rows, prompts included.
    """

    input_ids_BL: Tensor
    state_T: Tensor
    last_S: Tensor
    tokens: int

    @property
    def padding(self) -> float:
        """Share of the rows that is padding, in [0, 1)."""
        return 1.0 - self.tokens / max(1, self.input_ids_BL.numel())


def padded_rows(batch: Batch) -> Layout:
    """One row a sequence: its prompt, its answer, and padding up to the longest row.

    Raises: DataError for a prompt without a token, whose answer's first token nothing could predict.
    """
    require_prompts(batch)
    prompt_P = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    prompt_S, lengths_S = prompt_P[batch.group_S], batch.lengths_S
    total_S = prompt_S + lengths_S
    width = int(total_S.max()) if batch.num_sequences else 0
    starts_S = torch.cumsum(lengths_S, 0) - lengths_S
    offset_T = torch.arange(batch.num_tokens) - starts_S[batch.seq_T]
    first_T = prompt_S[batch.seq_T]
    row_T = batch.seq_T * width
    ids = torch.zeros(batch.num_sequences, width, dtype=torch.int64)
    for row, group in enumerate(batch.group_S.tolist()):
        ids[row, : prompt_S[row]] = batch.prompts_P[group]
    ids.view(-1)[row_T + first_T + offset_T] = batch.token_ids_T
    return Layout(
        input_ids_BL=ids,
        state_T=row_T + predecessors(offset_T, first_T, first_T - 1),
        last_S=torch.arange(batch.num_sequences) * width + total_S - 1,
        tokens=int(total_S.sum()),
    )


def require_prompts(batch: Batch) -> None:
    """Raises DataError for a prompt without a token."""
    empty = next((group for group, prompt in enumerate(batch.prompts_P) if not len(prompt)), None)
    if empty is not None:
        key = batch.keys_S[int((batch.group_S == empty).nonzero()[0, 0])]
        raise DataError(
            f"the prompt of rollout {key} has no token, so nothing predicts the answer's first token; "
            "render the prompt with at least a start token"
        )


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on ``device``; itself when they are there. Prompts stay where they are."""
    if batch.token_ids_T.device == device:
        return batch
    fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(Batch)}
    moved = {name: field.to(device) for name, field in fields.items() if isinstance(field, Tensor)}
    columns = {name: column.to(device) for name, column in batch.columns.items()}
    return dataclasses.replace(batch, columns=columns, **moved)
