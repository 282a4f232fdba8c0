"""One update: the weighted loss of a batch, taken through a model in micro-batches.

    gradient = sum over micro-batches of d/dtheta sum_T weights_T * sum_k coefficient_k * term_k,T

Weights belong to the whole update, so micro-batches are only ever added up, never averaged, and their
size cannot change the gradient. Nothing here knows how a model is held: a trainer hands in a function
from batch to model output, has its share of the micro-batches accumulated, and steps.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.trainer.faults import NotFiniteError, not_finite_loss
from trimtab.trainer.layout import to_device
from trimtab.trainer.routing import agreement
from trimtab.trainer.sharing import Cost, plan
from trimtab.types import Batch, ModelOutput, Trace

Forward = Callable[[Batch], ModelOutput]


@dataclass(slots=True)
class Clock:
    """Seconds by stage. On CUDA each stage waits for the device, so that its time is its own."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started


@dataclass(frozen=True, slots=True, eq=False)
class Accumulated:
    """What the micro-batches added up to: each term's share of the loss, and the trace in batch order."""

    losses: Mapping[str, float]
    trace: Trace


def nothing_to_train(batch: Batch) -> str | None:
    """Why a weighted batch must not step at all, or None. AdamW moves weights even by a zero gradient."""
    if not batch.num_tokens:
        return "the update has no token"
    return None if bool(batch.weights_T.any()) else "every token of the update is masked"


def silent_S(batch: Batch, objective: Objective) -> Tensor:
    """[S] bool: sequences whose gradient is exactly zero under this objective.

    Those without a weight; and, where every term is a policy term, those without an advantage.
    """
    loud_T = batch.weights_T != 0
    if all(isinstance(term, PolicyGradient) for _, term in objective.terms):
        loud_T = loud_T & (batch.advantages_T != 0)
    return torch.bincount(batch.seq_T[loud_T], minlength=batch.num_sequences) == 0


def cut(
    batch: Batch, objective: Objective, max_tokens: int, cost: Cost | None, *, skip_silent: bool
) -> tuple[Batch, list[list[int]]]:
    """The micro-batches of a weighted batch, as indices of its sequences; empty answers are in none.

    The batch comes back with ``row_S`` where sharing prompts pays (see ``sharing.plan``).
    """
    wanted_S = batch.lengths_S > 0
    if skip_silent:
        wanted_S &= ~silent_S(batch, objective)
    return plan(batch, wanted_S.nonzero().flatten(), max_tokens, cost)


def alone(fault: NotFiniteError | None) -> None:
    """Raise the fault, as nobody else need be asked."""
    if fault is not None:
        raise fault


def accumulate(
    batch: Batch,
    objective: Objective,
    forward: Forward,
    parts: Sequence[Sequence[int]],
    clock: Clock,
    *,
    after_backward: Callable[[], None] = lambda: None,
    agree: Callable[[NotFiniteError | None], None] = alone,
) -> Accumulated:
    """Forward, objective and backward of each part of a weighted batch; gradients stay in the weights.

    A batch without old log-probabilities takes those of this very pass (see ``Trainer``).
    ``after_backward`` runs after each part; ``agree`` is told before each backward pass whether the loss is
    finite, and raises. Tokens outside all parts have NaN in the trace, or False where it is bool.

    Raises: NotFiniteError for a loss that is not finite, before it gets a backward pass.
    """
    batch = batch.with_columns(place_T=torch.arange(batch.num_tokens))
    losses: dict[str, float] = {}
    seen: dict[str, Tensor] = {}
    for sequences in parts:
        part = batch.select(sequences)
        with clock("forward"):
            out = forward(part)
        if "old_logprobs_T" not in part.columns:
            part = part.with_columns(old_logprobs_T=out.logprobs_T.detach().cpu())
        with clock("objective"):
            shares, trace = objective(out, to_device(part, out.logprobs_T.device))
            trace = trace | _routing(part, out)
            total = torch.stack(list(shares.values())).sum()
        agree(None if bool(total.isfinite()) else not_finite_loss(part, out, shares))
        if total.requires_grad:
            with clock("backward"):
                total.backward()
                after_backward()
        with clock("objective"):
            for name, share in shares.items():
                losses[name] = losses.get(name, 0.0) + float(share.detach())
            _scatter(seen, trace, part.columns["place_T"], batch.num_tokens)
    return Accumulated(losses, Trace(**seen))


def _routing(part: Batch, out: ModelOutput) -> Trace:
    old_T = part.columns.get("old_experts_T")
    if old_T is None or out.experts_T is None:
        return Trace()
    return Trace(routing_T=agreement(old_T, out.experts_T.cpu()))


def _scatter(seen: dict[str, Tensor], trace: Trace, place_T: Tensor, tokens: int) -> None:
    """Put a part's trace at its tokens' places in the whole batch's order."""
    for entry in dataclasses.fields(Trace):
        column_T: Tensor | None = getattr(trace, entry.name)
        if column_T is None:
            continue
        if entry.name not in seen:
            empty = False if column_T.dtype is torch.bool else torch.nan
            seen[entry.name] = torch.full((tokens,), empty, dtype=column_T.dtype)
        seen[entry.name][place_T] = column_T.cpu()
