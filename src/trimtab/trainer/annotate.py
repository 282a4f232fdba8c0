"""Columns that only a model can fill, read without gradients before the first update of a step."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor

from trimtab.data.packing import micro_batches
from trimtab.errors import SettingError, nearest
from trimtab.trainer.forward import Asked
from trimtab.trainer.routing import UNKNOWN
from trimtab.trainer.sharing import plan
from trimtab.trainer.together import Alone, Reads, Together
from trimtab.types import Batch

COLUMNS = ("old_logprobs_T", "ref_logprobs_T", "values_T", "bootstrap_S")


def annotated(
    batch: Batch,
    columns: Set[str],
    policy: Reads,
    reference: Reads | None,
    *,
    from_sampler: bool,
    max_tokens: int,
    together: Together = Alone(),
) -> Batch:
    """The batch with these columns; ``values_T`` brings ``bootstrap_S`` and the other way round.

    from_sampler: old log-probabilities are the sampler's own, no pass is made for them.
    With old log-probabilities of a mixture of experts comes ``old_experts_T`` [T, layers, k], at the price of
    one micro-batch, for the metric ``routing/agreement``.

    Raises: SettingError for a column that no trainer fills, or that needs a model which is not there.
    """
    for column in sorted(columns - set(COLUMNS)):
        raise SettingError(f"no trainer fills the column {column!r}{nearest(column, COLUMNS)}")
    filled: dict[str, Tensor] = {}
    old = "old_logprobs_T" in columns
    if old and from_sampler:
        filled["old_logprobs_T"] = batch.rollout_logprobs_T.clone()
    asked = Asked(logprobs=old and not from_sampler, values=bool(columns & {"values_T", "bootstrap_S"}))
    if asked.logprobs or asked.values:
        filled |= read_columns(policy, batch, asked, max_tokens, logprobs="old_logprobs_T", together=together)
    if "ref_logprobs_T" in columns:
        if reference is None:
            raise SettingError(
                "ref_logprobs_T is asked for but this trainer has no reference model; give it one, or take "
                "the KL term out of the algorithm"
            )
        filled |= read_columns(
            reference, batch, Asked(), max_tokens, logprobs="ref_logprobs_T", together=together
        )
    if old and policy.routers:
        filled |= _old_experts(policy, batch, max_tokens)
    return batch.with_columns(**filled)


@torch.no_grad()
def _old_experts(policy: Reads, batch: Batch, max_tokens: int) -> dict[str, Tensor]:
    """``old_experts_T`` of evenly spread answers, as many as fit into one micro-batch; elsewhere UNKNOWN."""
    wanted = (batch.lengths_S > 0).nonzero().flatten()
    spread = max(1, -(-batch.num_tokens // max_tokens))
    parts = micro_batches(batch.select(wanted[::spread]), max_tokens)
    if not parts:
        return {}
    place_T = torch.arange(batch.num_tokens)
    part = batch.with_columns(place_T=place_T).select(wanted[::spread][torch.tensor(parts[0])])
    out, _ = policy(part, Asked())
    if out.experts_T is None:
        return {}
    experts_T = torch.full((batch.num_tokens, *out.experts_T.shape[1:]), UNKNOWN, dtype=torch.int64)
    experts_T[part.columns["place_T"]] = out.experts_T.cpu()
    return {"old_experts_T": experts_T}


@torch.no_grad()
def read_columns(
    reader: Reads,
    batch: Batch,
    asked: Asked,
    max_tokens: int,
    *,
    logprobs: str,
    together: Together = Alone(),
) -> dict[str, Tensor]:
    """What the reader says of the whole batch, in its order; log-probabilities under the name given."""
    every_S = torch.arange(batch.num_sequences)
    batch, parts = together.cut(lambda limit: plan(batch, every_S, limit, reader.cost), max_tokens)
    share = together.share(batch, parts)
    place_T, place_S = torch.arange(share.batch.num_tokens), torch.arange(share.batch.num_sequences)
    placed = share.batch.with_columns(place_T=place_T, place_S=place_S)
    columns: dict[str, Tensor] = {}

    def put(name: str, size: int, place: Tensor, values: Tensor | None) -> None:
        if values is not None:
            columns.setdefault(name, torch.zeros(size, dtype=values.dtype))[place] = values.cpu()

    for sequences in share.parts:
        part = placed.select(sequences)
        out, bootstrap_S = reader(part, asked)
        if asked.logprobs:
            put(logprobs, len(place_T), part.columns["place_T"], out.logprobs_T)
        put("values_T", len(place_T), part.columns["place_T"], out.values_T)
        put("bootstrap_S", len(place_S), part.columns["place_S"], bootstrap_S)
    return together.whole(columns, share)
