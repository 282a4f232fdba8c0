"""What is said when a number of an update is not finite: which tensor, which update, which rollouts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.types import Batch, ModelOutput

KEYS_SHOWN = 5

WORDS = {
    "rewards_S": "the reward",
    "rollout_logprobs_T": "the sampler's log-probability",
    "old_logprobs_T": "the old log-probability",
    "ref_logprobs_T": "the reference's log-probability",
    "values_T": "the critic's value",
    "kl_rewards_T": "the KL part of the reward",
    "advantages_T": "the advantage",
    "returns_T": "the return",
    "correction_T": "the factor of the rollout correction",
    "weights_T": "the weight of a token in the loss",
    "logprobs_T": "the new log-probability",
    "entropy_T": "the entropy",
}
"""Columns in the order in which a step makes them: the first bad one is the cause of the later ones."""


class NotFiniteError(RunError):
    """A number that is not finite. ``tensor`` names where, ``keys`` the rollouts.

    spoilt: whether the update has changed weights. The loop adds where it happened: ``step``, ``update``
    (number in the run), ``batch`` (what the update saw), ``entropy_coefficient``, and ``remedy``.
    """

    def __init__(self, tensor: str, keys: Sequence[str], *, spoilt: bool = False) -> None:
        self.tensor = tensor
        self.keys = tuple(keys)
        self.spoilt = spoilt
        self.step: int | None = None
        self.update: int | None = None
        self.batch: Batch | None = None
        self.entropy_coefficient: float | None = None
        self.remedy = ""
        super().__init__(tensor, keys)

    def at(self, update: int, batch: Batch) -> NotFiniteError:
        """The same error, which now knows its update; what an inner place has said stays."""
        if self.batch is None:
            self.update, self.batch = update, batch
        return self

    def __str__(self) -> str:
        more = f" and {len(self.keys) - KEYS_SHOWN} more" if len(self.keys) > KEYS_SHOWN else ""
        keys = ", ".join(self.keys[:KEYS_SHOWN]) + more
        place = "" if self.step is None else f"step {self.step}, update {self.update}: "
        changed = "the update has spoilt the weights" if self.spoilt else "no weight was changed"
        return (
            f"{place}{self.tensor} is not finite, seen at rollouts {keys}; "
            f"{changed}: resume from the last checkpoint, with a lower trainer.learning_rate if it returns"
            f"{self.remedy}"
        )


def bad_sequences(batch: Batch, name: str, column: Tensor) -> list[int]:
    """The sequences at which a column (ending in _T: its trained tokens; in _S) is not finite."""
    bad = ~column.detach().cpu().isfinite()
    if name.endswith("_S"):
        return bad.nonzero().flatten().tolist()
    return batch.seq_T[bad & batch.mask_T].unique().tolist()


def numbers_of(batch: Batch) -> dict[str, Tensor]:
    """The columns of a batch that must be finite where they count, in the order they are made."""
    known = {"rewards_S": batch.rewards_S, "rollout_logprobs_T": batch.rollout_logprobs_T, **batch.columns}
    return {name: known[name] for name in WORDS if name in known}


def require_finite(batch: Batch) -> None:
    """Raises NotFiniteError for the first column of ``numbers_of`` that is not."""
    for name, column in numbers_of(batch).items():
        if found := bad_sequences(batch, name, column):
            raise NotFiniteError(named(name), [batch.keys_S[s] for s in found])


def named(column: str) -> str:
    """A column in words: ``the advantage (advantages_T)``."""
    return f"{WORDS[column]} ({column})" if column in WORDS else column


def not_finite_loss(part: Batch, out: ModelOutput, shares: Mapping[str, Tensor]) -> NotFiniteError:
    """Of a micro-batch whose loss is not finite: its first such column, with the rollouts concerned."""
    made = {"logprobs_T": out.logprobs_T, "entropy_T": out.entropy_T, "values_T of now": out.values_T}
    others = {name: column for name, column in part.columns.items() if name.endswith("_T")}
    for name, column in (numbers_of(part) | others | made).items():
        if column is not None and (found := bad_sequences(part, name.split()[0], column)):
            return NotFiniteError(named(name), [part.keys_S[s] for s in found])
    terms = ", ".join(name for name, share in shares.items() if not bool(share.isfinite()))
    return NotFiniteError(f"the {terms} loss", part.keys_S)


def first_not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first of these tensors that holds a number that is not finite. Keeps none of them, so
    that a source that fetches its weights one after the other never lies here whole.
    """
    return next((name for name, tensor in tensors if not bool(tensor.isfinite().all())), None)


@torch.no_grad()
def first_spoilt(weights: Mapping[str, Tensor]) -> str | None:
    """As ``first_not_finite``, at the price of one norm where all is well: for use after every update."""
    if not weights or bool(nn.utils.get_total_norm(weights.values()).isfinite()):
        return None
    return first_not_finite(weights.items())
