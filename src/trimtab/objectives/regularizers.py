"""Terms beside the policy term: KL to a reference, an entropy bonus, and its adaptive coefficient."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import SettingError, nearest
from trimtab.objectives.ratio import token_ratio
from trimtab.ops.kl import ESTIMATORS, KLEstimator, kl_clamped
from trimtab.types import Batch, ModelOutput, Trace


@dataclass(frozen=True, slots=True)
class ReferenceKL:
    """loss_t = k(log pi_t - log pi_ref,t), or r_t times that; 0 where masked.

    estimator: what its value and its gradient are is told in ``ops/kl.py``. In short: k1 has no gradient
        on average; k2 has the reverse-KL gradient; k3 the forward-KL one, though its value is the reverse KL.
    importance_weighted: multiply by r = pi / pi_old, in the graph. Then k1 and k3 have the gradient of
        the reverse KL, also after the policy has moved away from pi_old. Needs ``old_logprobs_T`` too.

    Always token by token, whatever ratio the policy term uses. Trace: ``kl_T`` (without r), ``clamped_T``.
    Source: arXiv 2402.03300, eq. 4 (k3); importance weight, arXiv 2512.02556, section 3.1.
    """

    estimator: KLEstimator = "k3"
    importance_weighted: bool = False

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise SettingError(
                f"unknown KL estimator {self.estimator!r}{nearest(self.estimator, ESTIMATORS)}"
            )

    @property
    def name(self) -> str:
        return "kl"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(
            {"ref_logprobs_T", "old_logprobs_T"} if self.importance_weighted else {"ref_logprobs_T"}
        )

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        logprobs_T = out.logprobs_T
        log_T = torch.where(batch.mask_T, logprobs_T - batch.ref_logprobs_T.to(logprobs_T.dtype), 0.0)
        kl_T = ESTIMATORS[self.estimator](log_T)
        clamped_T = kl_clamped(log_T.detach(), self.estimator)
        if not self.importance_weighted:
            return kl_T, Trace(kl_T=kl_T.detach(), clamped_T=clamped_T)
        ratio_T, ratio_clamped_T = token_ratio(logprobs_T, batch)
        return ratio_T * kl_T, Trace(kl_T=kl_T.detach(), clamped_T=clamped_T | ratio_clamped_T)

    def __str__(self) -> str:
        weighted = ", importance-weighted" if self.importance_weighted else ""
        return f"{self.estimator} KL to the reference in the loss{weighted}"


@dataclass(frozen=True, slots=True)
class EntropyBonus:
    """loss_t = -entropy of the policy at token t (nats, whole vocabulary), 0 where masked.

    A positive coefficient rewards spread. It needs entropies with a gradient, which cost a second
    pass through the vocabulary; see ``Objective.entropy_grad``.

    Raises: SettingError where the model was read by a kernel that knows no entropy.
    """

    @property
    def name(self) -> str:
        return "entropy"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        if out.entropy_T is None:
            raise SettingError('an entropy bonus needs entropies; set trainer.kernels = "none"')
        return -torch.where(batch.mask_T, out.entropy_T, 0.0), Trace()

    def __str__(self) -> str:
        return "entropy bonus"


@dataclass(frozen=True, slots=True)
class EntropyTarget:
    """Moves the entropy bonus' coefficient so that the policy's entropy does not fall below a target.

        c <- min(c + change, maximum)     where entropy < target
        c <- max(c - change, 0)           otherwise

    target: nats, mean over trained tokens; > 0. change: per step of the loop. maximum: ceiling of c.
    The coefficient is the loop's state (it is in the checkpoint); this value only says how it moves.
    Source: adaptive entropy control, Skywork-OR1, arXiv 2505.22312, section 3.2.5 (target 0.2; change and
    maximum are those of its released scripts). There the bonus is also switched off while entropy is above
    the target.
    """

    target: float = 0.2
    change: float = 1e-4
    maximum: float = 5e-3

    def __post_init__(self) -> None:
        for name in ("target", "change", "maximum"):
            number: float = getattr(self, name)
            if not (math.isfinite(number) and number > 0.0):
                raise SettingError(f"entropy_target needs {name} > 0, got {number}")

    def step(self, coefficient: float, entropy: float) -> float:
        """The next coefficient after a step with this mean entropy. NaN leaves it as it is."""
        if math.isnan(entropy):
            return coefficient
        moved = coefficient + (self.change if entropy < self.target else -self.change)
        return min(max(moved, 0.0), self.maximum)

    def __str__(self) -> str:
        return f"entropy target {self.target:g}"
