"""The packed batch of an update, what a model says of it, and what an update did."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class MissingColumnError(LookupError):
    """A stage asked a Batch for a column that no earlier stage has filled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Graded rollouts of a step (or a part of them) as packed tensors. Ungraded ones never enter.

    Shapes: ``prompts_P`` P tensors of ids; ``token_ids_T, seq_T`` [T] int64 (``seq_T`` is
    non-decreasing and says which sequence token t belongs to; a sequence may have no token);
    ``mask_T`` [T] bool; ``rollout_logprobs_T`` [T] float32, from the sampler; ``group_S`` [S] int64
    into ``prompts_P``; ``rewards_S`` [S] float64 after shaping; ``outcomes_S`` [S] float64, the raw
    grades; ``truncated_S`` [S] bool; ``version_S`` [S] int64; ``keys_S`` the rollouts' keys.

    ``columns`` are filled by later stages and read through properties that raise with the remedy.

    Example: two answers to one prompt, of 2 and 1 tokens:
        seq_T = [0, 0, 1], group_S = [0, 0], mask_T = [True, True, True]
    """

    prompts_P: tuple[Tensor, ...]
    token_ids_T: Tensor
    seq_T: Tensor
    mask_T: Tensor
    rollout_logprobs_T: Tensor
    group_S: Tensor
    rewards_S: Tensor
    outcomes_S: Tensor
    truncated_S: Tensor
    version_S: Tensor
    keys_S: tuple[str, ...]
    columns: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    @property
    def num_sequences(self) -> int:
        return len(self.keys_S)

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids_T.shape[0])

    @property
    def lengths_S(self) -> Tensor:
        """Response tokens of each sequence, masked ones included."""
        return torch.bincount(self.seq_T, minlength=self.num_sequences)

    @property
    def trained_S(self) -> Tensor:
        """Trained tokens of each sequence."""
        return torch.bincount(self.seq_T[self.mask_T], minlength=self.num_sequences)

    @property
    def old_logprobs_T(self) -> Tensor:
        return self._column("old_logprobs_T", "trainer.annotate(batch, {'old_logprobs_T'})")

    @property
    def ref_logprobs_T(self) -> Tensor:
        return self._column(
            "ref_logprobs_T", "trainer.annotate(batch, {'ref_logprobs_T'}), which needs a reference model"
        )

    @property
    def values_T(self) -> Tensor:
        return self._column("values_T", "trainer.annotate(batch, {'values_T'}), which needs a critic")

    @property
    def advantages_T(self) -> Tensor:
        return self._column("advantages_T", "batch.with_columns(**advantage(batch))")

    @property
    def returns_T(self) -> Tensor:
        return self._column("returns_T", "an advantage estimator with a critic (GAE)")

    @property
    def weights_T(self) -> Tensor:
        return self._column(
            "weights_T", "objective.weighted(batch) on the whole update, before micro-batches"
        )

    def _column(self, name: str, remedy: str) -> Tensor:
        try:
            return self.columns[name]
        except KeyError:
            raise MissingColumnError(f"this batch has no {name}; fill it with {remedy}") from None

    def with_columns(self, **columns: Tensor) -> Batch:
        """A copy with more columns. Names end in _T (one entry a token) or _S (one a sequence)."""
        sizes = {"_T": self.num_tokens, "_S": self.num_sequences}
        for name, column in columns.items():
            expected = sizes.get(name[-2:])
            if expected is None or column.shape[0] != expected:
                raise ValueError(f"column {name}: expected {expected} entries, got {tuple(column.shape)}")
        return dataclasses.replace(self, columns={**self.columns, **columns})

    def select(self, sequences: Sequence[int] | Tensor) -> Batch:
        """The whole sequences of these indices, in this order, with all their columns.

        Groups are renumbered in order of first appearance; a group without a sequence is dropped.
        """
        index_S = torch.as_tensor(sequences, dtype=torch.int64)
        lengths_S = self.lengths_S
        starts_S = torch.cumsum(lengths_S, 0) - lengths_S
        chosen_S = lengths_S[index_S]
        seq_T = torch.repeat_interleave(torch.arange(len(index_S)), chosen_S)
        first_S = torch.cumsum(chosen_S, 0) - chosen_S
        token_T = torch.arange(int(chosen_S.sum())) - first_S[seq_T] + starts_S[index_S][seq_T]
        order: dict[int, int] = {}
        group_S = [order.setdefault(int(g), len(order)) for g in self.group_S[index_S]]
        pick = {"_T": token_T, "_S": index_S}
        return Batch(
            prompts_P=tuple(self.prompts_P[g] for g in order),
            token_ids_T=self.token_ids_T[token_T],
            seq_T=seq_T,
            mask_T=self.mask_T[token_T],
            rollout_logprobs_T=self.rollout_logprobs_T[token_T],
            group_S=torch.tensor(group_S, dtype=torch.int64),
            rewards_S=self.rewards_S[index_S],
            outcomes_S=self.outcomes_S[index_S],
            truncated_S=self.truncated_S[index_S],
            version_S=self.version_S[index_S],
            keys_S=tuple(self.keys_S[int(i)] for i in index_S),
            columns={name: column[pick[name[-2:]]] for name, column in self.columns.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelOutput:
    """What one forward pass says of the T tokens of a batch, with gradients where training.

    ``logprobs_T`` float32 at the sampling temperature; ``entropy_T`` nats over the whole
    vocabulary, None from a kernel that has none; ``values_T`` from the critic, None where there is none;
    ``experts_T`` [T, layers, k] the experts that a mixture of experts chose, None in a dense model.
    """

    logprobs_T: Tensor
    entropy_T: Tensor | None
    values_T: Tensor | None = None
    experts_T: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """What an objective saw of each token, detached. None means: this objective has no such thing.

    ``ratio_T`` as the surrogate used it; ``gate_T`` share of the gradient let through; ``clamped_T``
    log-ratio clamped before exp; ``kl_T`` value of the KL term; ``value_clipped_T`` value loss cut;
    ``routing_T`` share of the old policy's experts that are chosen again, NaN where they are not known.
    """

    logprobs_T: Tensor | None = None
    entropy_T: Tensor | None = None
    ratio_T: Tensor | None = None
    gate_T: Tensor | None = None
    clamped_T: Tensor | None = None
    kl_T: Tensor | None = None
    values_T: Tensor | None = None
    value_clipped_T: Tensor | None = None
    routing_T: Tensor | None = None

    def __or__(self, other: Trace) -> Trace:
        """Both traces together; where both have a field, ``other`` counts. Clamped is what either clamped."""
        pairs = {f.name: getattr(other, f.name) for f in dataclasses.fields(Trace)}
        if self.clamped_T is not None and other.clamped_T is not None:
            pairs["clamped_T"] = self.clamped_T | other.clamped_T
        return dataclasses.replace(
            self, **{name: value for name, value in pairs.items() if value is not None}
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepReport:
    """What one update did. ``trace`` covers all T tokens of the update's batch, in its order.

    ``applied`` is False when the optimizer step was skipped, and ``skip_reason`` says why.
    ``losses`` holds each term's share of the loss by name, coefficient included.
    ``critic_warmup``: only the critic was trained; then ``grad_norm`` is None and ``learning_rate`` 0.
    """

    applied: bool
    skip_reason: str | None
    loss: float
    losses: Mapping[str, float]
    grad_norm: float | None
    critic_grad_norm: float | None
    learning_rate: float
    trace: Trace
    seconds: Mapping[str, float]
    critic_warmup: bool = False


class WeightSource(Protocol):
    """Named parameters, yielded one by one; what a trainer publishes and an engine loads."""

    def __iter__(self) -> Iterator[tuple[str, Tensor]]: ...
