"""An objective: terms with coefficients, and the weights that belong to the batch.

loss = sum_T weights_T * sum_k coefficient_k * term_k,T
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from trimtab.errors import SettingError
from trimtab.types import Batch, ModelOutput, Trace

Aggregate = Callable[[Batch], Tensor]
"""Batch of one whole update -> weights_T float64: each token's share of the loss, 0 where masked."""


class Term(Protocol):
    """One summand of the loss, per token. ``needs`` names the columns it reads."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> frozenset[str]: ...

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]: ...


def present(*terms: tuple[float, Term]) -> tuple[tuple[float, Term], ...]:
    """The terms whose coefficient is not 0: a KL with coefficient 0 must not ask for a reference model.

    Raises SettingError for a coefficient below 0, which would turn a term against its purpose.
    """
    for coefficient, term in terms:
        if not 0.0 <= coefficient < float("inf"):
            raise SettingError(f"the coefficient of the {term.name} term must be >= 0, got {coefficient}")
    return tuple((coefficient, term) for coefficient, term in terms if coefficient != 0.0)


@dataclass(frozen=True, slots=True)
class Objective:
    """The whole loss of an update. Free of batch size, padding and ranks, because weights are given."""

    terms: tuple[tuple[float, Term], ...]
    aggregate: Aggregate

    @property
    def needs(self) -> frozenset[str]:
        """Columns that must exist before an update; the only coupling from algorithm to trainer."""
        return frozenset(name for _, term in self.terms for name in term.needs)

    @property
    def entropy_grad(self) -> bool:
        """Whether ``ModelOutput.entropy_T`` must carry a gradient in this update (it costs time)."""
        return any(term.name == "entropy" and coefficient != 0.0 for coefficient, term in self.terms)

    def with_coefficient(self, name: str, coefficient: float) -> Objective:
        """The same objective with another coefficient on the term of this name."""
        if all(term.name != name for _, term in self.terms):
            raise KeyError(f"this objective has no term {name!r}")
        terms = tuple((coefficient if term.name == name else old, term) for old, term in self.terms)
        return replace(self, terms=terms)

    def weighted(self, batch: Batch) -> Batch:
        """The batch of one whole update with its ``weights_T``; call before cutting micro-batches."""
        return batch.with_columns(weights_T=self.aggregate(batch))

    def __call__(self, out: ModelOutput, batch: Batch) -> tuple[dict[str, Tensor], Trace]:
        """Each term's share of the loss by name (add them up for the loss), and the trace."""
        losses: dict[str, Tensor] = {}
        entropy_T = None if out.entropy_T is None else out.entropy_T.detach()
        trace = Trace(logprobs_T=out.logprobs_T.detach(), entropy_T=entropy_T)
        for coefficient, term in self.terms:
            loss_T, seen = term(out, batch)
            share = coefficient * (batch.weights_T.to(loss_T.dtype) * loss_T).sum()
            losses[term.name] = losses[term.name] + share if term.name in losses else share
            trace = trace | seen
        return losses, trace
