"""One row for several answers to a prompt, so that the prompt goes through the model once.

    prompt | answer 1 | answer 2 | answer 3          positions: 0 .. P-1 | P .. | P .. | P ..

Every answer sees the prompt and itself, never another answer, and its positions go on from the prompt's: so
each token has the context it has in a row of its own, and log-probabilities and gradients are the same up
to rounding. It pays where prompts are long beside answers. It costs attention over the whole row, whose
masked part is computed and thrown away; ``Cost`` weighs both, and rows stay plain where it would not pay.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.data.packing import micro_batches
from trimtab.models import Backbone, LoadedModel
from trimtab.ops.logprobs import predecessors
from trimtab.trainer.packed import packed_parts
from trimtab.types import Batch

ROW = "row_S"
"""The batch column [S] that says in which row a sequence stands; a batch without it has plain rows."""

GAIN = 0.85
"""Sharing must cost at most this share of the plain way: estimates are rough, and masks cost time as well."""

AGREES = 1e-3
"""Hidden states of both ways may differ by this much of their size before sharing is refused (float32)."""

MASKABLE = ("sdpa", "trimtab_grouped")
"""Attention implementations that take a boolean mask for each query and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Floating-point operations of a row of n tokens in one layer: ``token * n + pair * n^2``.

    token: two for each weight of the layer. pair: four for each hidden unit; half in a plain row, where
    nothing above the diagonal is computed. packed: there are no rows, and prompts are shared without a price
    (see ``packed``).
    """

    token: float
    pair: float
    packed: bool = False

    @classmethod
    def of(cls, model: LoadedModel, *, packed: bool = False) -> Cost:
        config = model.module.config.get_text_config()
        inside = sum(p.numel() for p in model.module.base_model.parameters())
        inside -= model.module.get_input_embeddings().weight.numel()  # type: ignore[union-attr]  # a Tensor
        return cls(
            token=2.0 * inside / config.num_hidden_layers, pair=4.0 * config.hidden_size, packed=packed
        )

    def plain(self, total: int) -> float:
        """Of one answer in a row of its own; total: its prompt and response tokens."""
        return self.token * total + 0.5 * self.pair * total * total

    def shared(self, total: int) -> float:
        """Of a row of several answers; total: the prompt once, and all answers."""
        return self.token * total + self.pair * total * total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedRows:
    """Rows as a model reads them, with what it must be told about them.

    ``input_ids_BL``, ``positions_BL`` [B, L] int64, ``mask_BQK`` [B, 1, L, L] bool (True: query sees key).
    ``state_T`` [T] and ``last_S`` [S] as in ``layout.Layout``.
    """

    input_ids_BL: Tensor
    positions_BL: Tensor
    mask_BQK: Tensor
    state_T: Tensor
    last_S: Tensor


def plan(batch: Batch, wanted_S: Tensor, max_tokens: int, cost: Cost | None) -> tuple[Batch, list[list[int]]]:
    """The batch, with ``row_S`` where sharing pays, and its micro-batches over the wanted sequences.

    wanted_S: indices. cost: None never shares. A micro-batch takes up its number of rows times its longest
    row, padded tokens included, and stays within ``max_tokens`` where one row does; packed tokens stand in no
    rows (see ``packed.packed_parts``).
    """
    if cost is not None and cost.packed:
        return batch, packed_parts(batch, wanted_S, max_tokens)
    index_S = wanted_S.tolist()
    simple = [[index_S[i] for i in part] for part in micro_batches(batch.select(wanted_S), max_tokens)]
    if cost is None or not index_S:
        return batch, simple
    prompts = torch.tensor([len(prompt) for prompt in batch.prompts_P])[batch.group_S].tolist()
    lengths = batch.lengths_S.tolist()
    rows = [
        row for group in _groups(batch, index_S) for row in _rows(group, prompts, lengths, max_tokens, cost)
    ]
    totals = [prompts[row[0]] + sum(lengths[s] for s in row) for row in rows]
    together = sum(
        cost.shared(total) if len(row) > 1 else cost.plain(total)
        for row, total in zip(rows, totals, strict=True)
    )
    if together > GAIN * sum(cost.plain(prompts[s] + lengths[s]) for s in index_S):
        return batch, simple
    row_S = torch.full((batch.num_sequences,), -1, dtype=torch.int64)
    for number, row in enumerate(rows):
        row_S[row] = number
    parts: list[list[int]] = []
    room = 0
    for number in sorted(range(len(rows)), key=lambda r: (-totals[r], r)):
        if room < 1:
            parts.append([])
            room = max(1, max_tokens // totals[number])
        parts[-1] += rows[number]
        room -= 1
    return batch.with_columns(**{ROW: row_S}), parts


def _groups(batch: Batch, index_S: Sequence[int]) -> list[list[int]]:
    """The wanted sequences of each group, longest answers first."""
    found: dict[int, list[int]] = {}
    lengths = batch.lengths_S.tolist()
    for sequence in sorted(index_S, key=lambda s: (-lengths[s], s)):
        found.setdefault(int(batch.group_S[sequence]), []).append(sequence)
    return list(found.values())


def _rows(
    group: list[int], prompts: Sequence[int], lengths: Sequence[int], max_tokens: int, cost: Cost
) -> list[list[int]]:
    """A group cut into rows of equally many answers: the number that costs least and fits."""
    prompt = prompts[group[0]]
    best, best_cost = [[sequence] for sequence in group], float("inf")
    for size in range(1, len(group) + 1):
        rows = [group[i : i + size] for i in range(0, len(group), size)]
        totals = [prompt + sum(lengths[s] for s in row) for row in rows]
        if size > 1 and max(totals) > max_tokens:
            break
        spent = sum(map(cost.plain if size == 1 else cost.shared, totals))
        if spent < best_cost:
            best, best_cost = rows, spent
    return best


def shared_rows(batch: Batch) -> SharedRows:
    """The rows that ``row_S`` describes: sequences of one row must be of one group."""
    rows = batch.columns[ROW].tolist()
    order = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    row_S = torch.tensor([order[row] for row in rows], dtype=torch.int64)
    prompt_S = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)[batch.group_S]
    lengths_S = batch.lengths_S
    start_S, used = torch.zeros_like(lengths_S), [0] * len(order)
    for sequence, row in enumerate(row_S.tolist()):
        used[row] = used[row] or int(prompt_S[sequence])
        start_S[sequence] = used[row]
        used[row] += int(lengths_S[sequence])
    width = max(used)
    ids = torch.zeros(len(order), width, dtype=torch.int64)
    positions, owner = torch.zeros_like(ids), torch.full_like(ids, -1)
    for sequence, row in enumerate(row_S.tolist()):
        prompt, start, length = int(prompt_S[sequence]), int(start_S[sequence]), int(lengths_S[sequence])
        ids[row, :prompt] = batch.prompts_P[int(batch.group_S[sequence])]
        positions[row, :prompt] = torch.arange(prompt)
        owner[row, :prompt] = 0
        positions[row, start : start + length] = prompt + torch.arange(length)
        owner[row, start : start + length] = sequence + 1
    first_S = torch.cumsum(lengths_S, 0) - lengths_S
    offset_T = torch.arange(batch.num_tokens) - first_S[batch.seq_T]
    row_T, begin_T = row_S[batch.seq_T] * width, start_S[batch.seq_T]
    ids.view(-1)[row_T + begin_T + offset_T] = batch.token_ids_T
    last_S = row_S * width + torch.where(lengths_S > 0, start_S + lengths_S, prompt_S) - 1
    return SharedRows(
        input_ids_BL=ids,
        positions_BL=positions,
        mask_BQK=_mask(owner),
        state_T=row_T + predecessors(offset_T, begin_T, prompt_S[batch.seq_T] - 1),
        last_S=last_S,
    )


def _mask(owner_BL: Tensor) -> Tensor:
    """[B, 1, L, L]: whom each token sees. owner: 0 the prompt, s + 1 an answer, -1 padding (sees itself)."""
    query, key = owner_BL[:, :, None], owner_BL[:, None, :]
    causal = torch.ones(owner_BL.shape[1], owner_BL.shape[1], dtype=torch.bool).tril()
    sees = (key == query) | ((key == 0) & (query > 0))
    itself = torch.eye(owner_BL.shape[1], dtype=torch.bool)
    return ((sees & causal & (query >= 0)) | itself)[:, None]


def can_share(model: LoadedModel, backbone: Backbone) -> bool:
    """Whether this architecture's states are the same in a shared row as in plain ones.

    Only full attention can be masked so; then it is tried on a few tokens, since architectures differ in
    more ways than their configs tell.
    """
    config = model.module.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    plainly = kinds == {"full_attention"} and not getattr(config, "sliding_window", None)
    if not plainly or model.module.config._attn_implementation not in MASKABLE:
        return False
    ids = torch.arange(8, device=model.device) % model.vocab_size
    rows = torch.stack([ids[[0, 1, 2, 3, 4]], ids[[0, 1, 2, 5, 6]]])
    row, positions = (
        ids[[0, 1, 2, 3, 4, 5, 6]][None],
        torch.tensor([[0, 1, 2, 3, 4, 3, 4]], device=model.device),
    )
    mask = _mask(torch.tensor([[0, 0, 0, 1, 1, 2, 2]])).to(model.device)
    with torch.no_grad():
        try:
            alone, together = backbone(rows, None, None), backbone(row, mask, positions)[0]
        except (RuntimeError, ValueError, TypeError):
            return False
    expected = torch.cat([alone[0], alone[1, 3:]]).float()
    slack = AGREES if model.dtype is torch.float32 else 0.05
    return bool((together.float() - expected).abs().max() <= slack * expected.abs().max())
