"""What is said when a number of an update is not finite: which tensor, and at which rollouts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from trimtab.errors import RunError
from trimtab.types import Batch, ModelOutput

KEYS_SHOWN = 5


class NotFiniteError(RunError):
    """A loss or gradient that is not finite. ``tensor`` names where, ``keys`` the rollouts."""

    def __init__(self, tensor: str, keys: Sequence[str]) -> None:
        self.tensor = tensor
        self.keys = tuple(keys)
        more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
        super().__init__(
            f"{tensor} is not finite, seen at rollouts {', '.join(keys[:KEYS_SHOWN])}{more}; no weight was "
            "changed: resume from the last checkpoint, with a lower trainer.learning_rate if it returns"
        )


def not_finite_loss(part: Batch, out: ModelOutput, shares: Mapping[str, Tensor]) -> NotFiniteError:
    """Of a micro-batch whose loss is not finite: its first such column, with the rollouts concerned."""
    given = {name: column for name, column in part.columns.items() if name.endswith("_T")}
    made = {"logprobs_T": out.logprobs_T, "entropy_T": out.entropy_T, "values_T of now": out.values_T}
    for name, column_T in (given | made).items():
        if column_T is None:
            continue
        bad_T = ~column_T.detach().cpu().isfinite() & part.mask_T
        if bool(bad_T.any()):
            return NotFiniteError(name, [part.keys_S[s] for s in part.seq_T[bad_T].unique().tolist()])
    terms = ", ".join(name for name, share in shares.items() if not bool(share.isfinite()))
    return NotFiniteError(f"the {terms} loss", part.keys_S)


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first of these tensors that holds a number that is not finite."""
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
