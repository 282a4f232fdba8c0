"""A KL penalty inside the reward, token by token."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import SettingError, nearest
from trimtab.ops.kl import ESTIMATORS, KLEstimator
from trimtab.types import Batch


@dataclass(frozen=True, slots=True)
class KLInReward:
    """kl_rewards_T = -coef * k(log pi_old - log pi_ref), float64, 0 where masked.

    pi_old is the policy that sampled, as the trainer computes it before the first update; the penalty
    is a number, not a graph. k1 is exact on average, and the policy gradient of this penalty is the gradient
    of the reverse KL; with k2 or k3 it is not. A single token's k1 can be negative, its reward then positive;
    k2 and k3 never reward. GAE adds it to each token's reward, group baselines to the answer's sum.
    coef: > 0. Needs ``old_logprobs_T`` and ``ref_logprobs_T``. Only k3 is bounded (see ``ops/kl.py``).
    Source: arXiv 2203.02155, eq. 2 (coefficient 0.02).
    """

    coef: float
    estimator: KLEstimator = "k1"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coef) and self.coef > 0.0):
            raise SettingError(
                f'kl_in_reward needs coef > 0, got {self.coef}; set kl_in_reward = "none" for none'
            )
        if self.estimator not in ESTIMATORS:
            raise SettingError(
                f"unknown KL estimator {self.estimator!r}{nearest(self.estimator, ESTIMATORS)}"
            )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"old_logprobs_T", "ref_logprobs_T"})

    def __call__(self, batch: Batch) -> Tensor:
        """[T] float64, to be stored as the column ``kl_rewards_T``."""
        log_T = batch.old_logprobs_T.to(torch.float64) - batch.ref_logprobs_T.to(torch.float64)
        return -self.coef * ESTIMATORS[self.estimator](torch.where(batch.mask_T, log_T, 0.0))

    def __str__(self) -> str:
        return f"{self.estimator} KL in the reward, {self.coef:g}"
