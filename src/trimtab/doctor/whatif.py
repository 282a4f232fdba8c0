"""What another algorithm would have done with the same recorded tokens.

    ratio, gate   the algorithm's own trust region on the recorded log pi_new - log pi_old
    weight        its aggregate over the whole update
    gradient      d loss / d log pi(y_t) of its policy term; = |weight * gate * ratio * A| where that holds
    share         gradient / sum of gradient over the recorded tokens of the same update

Recomputed: rewards from the recorded grades (scale and length penalty), group advantages from them, which
tokens are trained (overlong filtering), weights, ratios, gates. Kept as recorded: the answers, the selection
of groups, their split into updates, and the log-probabilities, which come from the run's own weights. So
this is one update seen with other eyes, never another run: its weights would have moved elsewhere.
Not recomputed: advantages that need a critic, KL and entropy terms of the loss, a rollout correction.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.algorithms import Algorithm
from trimtab.doctor.whatif_advantages import advantages_of, made_anew
from trimtab.doctor.whatif_batch import NO_TOKENS, batch_of, graded_rows, has_tokens
from trimtab.errors import DataError, SettingError
from trimtab.objectives.policy import PolicyGradient
from trimtab.record.rows import RolloutRow
from trimtab.types import Batch, ModelOutput

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

KEPT = 0.99
"""A gate from here on lets the token through; below it the token is damped, at 0 it is cut."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReweighedRollout:
    """One rollout under one algorithm; every array has one entry for each response token.

    trained_T: in the loss. advantages_T: 0 where not trained. ratio_T, gate_T: as the surrogate used them;
    NaN where the run did not look at the token (it had exactly no gradient). weight_T: share of the
    update's loss. gradient_share_T: share of the update's policy gradient over the recorded tokens, >= 0.
    """

    key: str
    update: int
    trained_T: Bools
    advantages_T: Floats
    ratio_T: Floats
    gate_T: Floats
    weight_T: Floats
    gradient_share_T: Floats

    @cached_property
    def moved_T(self) -> Bools:
        """Tokens that the plain policy gradient would move: trained, with an advantage and a weight."""
        return self.trained_T & (self.advantages_T != 0) & (self.weight_T != 0)

    @cached_property
    def cut_T(self) -> Bools:
        """Of those, the tokens whose gradient is removed altogether."""
        return self.moved_T & (self.gate_T == 0)

    @cached_property
    def damped_T(self) -> Bools:
        """Of those, the tokens that keep a part of their gradient, below ``KEPT``."""
        return self.moved_T & (self.gate_T > 0) & (self.gate_T < KEPT)

    @property
    def cut_whole(self) -> bool:
        """Whether all its tokens are cut."""
        return bool(self.moved_T.any()) and bool(self.cut_T[self.moved_T].all())

    @property
    def gate(self) -> float | None:
        """Mean gate over the tokens that could be moved; None where there are none, or none was looked at."""
        seen = self.gate_T[self.moved_T & ~np.isnan(self.gate_T)]
        return float(seen.mean()) if len(seen) else None

    @property
    def share(self) -> float:
        """Its share of the update's gradient over the recorded tokens."""
        return float(np.nansum(self.gradient_share_T))


@dataclass(frozen=True, eq=False, kw_only=True)
class Reweighed:
    """The recorded tokens of a step under one algorithm.

    rollouts: by key, in the order of the record. advantages: whether they are the run's or made anew.
    batch_rollouts, batch_tokens: answers and trained tokens in the step's updates by the rows given;
    values per token are there for ``rollouts`` only.
    """

    algorithm: str
    rollouts: Mapping[str, ReweighedRollout]
    advantages: Literal["recorded", "recomputed"]
    batch_rollouts: int
    batch_tokens: int

    @property
    def tokens(self) -> int:
        """Trained tokens with values."""
        return sum(int(r.trained_T.sum()) for r in self.rollouts.values())

    @property
    def unseen(self) -> int:
        """Tokens with an advantage here that the run had not looked at, since they had none there."""
        return sum(int((r.moved_T & np.isnan(r.gate_T)).sum()) for r in self.rollouts.values())


def reweigh(
    rollouts: Sequence[RolloutRow], algorithm: Algorithm, *, own: Algorithm | None = None
) -> Reweighed:
    """All recorded rollouts of one step as ``algorithm`` would have weighed them. Pure.

    rollouts: every row of the step's file; rows without values per token count in weights and baselines.
    own: the run's algorithm. Where it makes advantages in the same way, the recorded ones are taken.

    Raises: DataError where no rollout has values per token; SettingError for an algorithm without a
    policy term, or one whose advantages cannot be made from the record.
    """
    rows = graded_rows(rollouts)
    if not any(has_tokens(row) for row in rows):
        raise DataError(NO_TOKENS)
    policy = _policy(algorithm)
    anew = made_anew(algorithm, own, rows)
    advantages_S = advantages_of(rows, algorithm) if anew else None
    found: dict[str, ReweighedRollout] = {}
    for update in sorted({row.update for row in rows if row.update is not None}):
        chosen = [place for place, row in enumerate(rows) if row.update == update]
        given_S = None if advantages_S is None else advantages_S[chosen]
        batch = batch_of(
            [rows[place] for place in chosen],
            overlong_filter=algorithm.overlong_filter,
            advantages_S=given_S,
        )
        seen = [at for at, place in enumerate(chosen) if has_tokens(rows[place])]
        if seen:
            found |= _weighed(algorithm.objective.weighted(batch).select(seen), policy, update)
    return whole_of(rows, algorithm.name, found, "recomputed" if anew else "recorded")


def whole_of(
    rows: Sequence[RolloutRow],
    name: str,
    found: Mapping[str, ReweighedRollout],
    advantages: Literal["recorded", "recomputed"],
) -> Reweighed:
    """The rollouts found, in the order of the rows, with what the rows tell of the step's updates."""
    used = [row for row in rows if row.update is not None]
    return Reweighed(
        algorithm=name,
        rollouts={row.key: found[row.key] for row in used if row.key in found},
        advantages=advantages,
        batch_rollouts=len(used),
        batch_tokens=sum(row.trained_tokens or 0 for row in used),
    )


def _policy(algorithm: Algorithm) -> PolicyGradient:
    for _, term in algorithm.objective.terms:
        if isinstance(term, PolicyGradient):
            return term
    raise SettingError(f"{algorithm.name} has no policy term, so there is no gate or gradient to compare")


def _weighed(batch: Batch, policy: PolicyGradient, update: int) -> dict[str, ReweighedRollout]:
    """The policy term on the recorded log-probabilities, and the loss's gradient on each of them."""
    logprobs_T = batch.columns["new_logprobs_T"].clone().requires_grad_()
    unseen_T = batch.mask_T & logprobs_T.detach().isnan()
    moved_T = batch.mask_T & (batch.advantages_T != 0) & (batch.weights_T != 0)
    loss_T, trace = policy(ModelOutput(logprobs_T=logprobs_T, entropy_T=torch.zeros_like(logprobs_T)), batch)
    assert trace.ratio_T is not None
    assert trace.gate_T is not None
    loss = (torch.where(moved_T, loss_T, 0.0) * batch.weights_T).sum()
    (gradient_T,) = torch.autograd.grad(loss, logprobs_T)
    gradient_T = torch.where(moved_T, gradient_T.to(torch.float64).abs(), 0.0)
    total = float(torch.nansum(gradient_T))

    def cut(column_T: Tensor) -> list[NDArray[Any]]:
        return [part.numpy() for part in column_T.split(batch.lengths_S.tolist())]

    columns = {
        "trained_T": cut(batch.mask_T),
        "advantages_T": cut(batch.advantages_T),
        "ratio_T": cut(torch.where(unseen_T, torch.nan, trace.ratio_T.to(torch.float64))),
        "gate_T": cut(torch.where(unseen_T, torch.nan, trace.gate_T.to(torch.float64))),
        "weight_T": cut(batch.weights_T),
        "gradient_share_T": cut(gradient_T / (total or 1.0)),
    }
    return {
        key: ReweighedRollout(
            key=key, update=update, **{name: parts[place] for name, parts in columns.items()}
        )
        for place, key in enumerate(batch.keys_S)
    }
