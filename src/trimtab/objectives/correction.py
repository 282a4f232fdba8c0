"""Rollout correction: what the sampler's policy drew counts as if the trainer's old policy had drawn it.

With pi_old the policy as it is before the step's first update and pi_rollout the one that sampled (an older
version, or the same weights in another engine or a lower precision), m the mask and l_t = log pi_old(y_t) -
log pi_rollout(y_t), 0 where masked:

    token       w_t = exp(l_t)
    sequence    w   = exp(sum_t m_t l_t)        the same for every token of the answer

    truncate    factor = min(max(w, low), high)
    mask        factor = w where low <= w <= high, else 0

    loss_policy,t  becomes  sg[factor_t] * loss_policy,t

The policy term's own ratio stays pi / pi_old, so its trust region is about the old policy however old the
answers are. KL, entropy and value terms are left alone, and so are the weights of the tokens: what is
truncated or masked still counts in every denominator, or correction would raise the others' step.
The log-ratio is clamped to +-LOG_RATIO_LIMIT before exp, and the tokens that it clamps are counted.

Truncation keeps every answer and bounds what one token can add to the variance, at the price of a bias
towards what pi_rollout likes. A mask drops instead what the two policies disagree about most. A sequence's
weight is the exact one, but it is a product: the spread of its logarithm grows with sqrt(|y|), so long
answers are cut first, and a run may come to breed short ones unseen. A token's weight ignores that the
tokens before it were drawn by pi_rollout too; its spread does not grow. Under a sequence ratio (GSPO) an
answer's gradient gets the mean of its tokens' factors.

Source: pi / pi_old beside pi_old / pi_rollout, arXiv 2110.00641 and 2505.24298 (AReaL); truncation, arXiv
1802.01561 (V-trace). Frameworks at hand: token, truncated at 2 (verl's threshold, SkyRL, slime,
ms-swift, open-instruct); sequence, masked above 3 (TRL 1.16 with vLLM); token, masked (IcePop).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import SettingError, nearest
from trimtab.ops.kl import LOG_RATIO_LIMIT
from trimtab.ops.segments import seq_sum
from trimtab.types import Batch

LEVELS = ("token", "sequence")
FORMS = ("truncate", "mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """factor_T, bounded; see the head of this file.

    level: "token" or "sequence". form: "truncate" or "mask". low, high: bounds of the weight w, with
    0 <= low <= 1 <= high < inf; the weight is 1 where both policies agree, so 1 must lie within.

    The default, tokens truncated at 2, is the most common form. It drops no answer and does not cut long ones
    first.

    Raises SettingError for unknown words and for bounds that exclude 1 or bound nothing.
    """

    level: Literal["token", "sequence"] = "token"
    form: Literal["truncate", "mask"] = "truncate"
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        for name, known in (("level", LEVELS), ("form", FORMS)):
            if getattr(self, name) not in known:
                value = getattr(self, name)
                raise SettingError(f"correction.{name}: unknown value {value!r}{nearest(str(value), known)}")
        if not 0.0 <= self.low <= 1.0 <= self.high < float("inf") or self.low == self.high:
            raise SettingError(
                f"correction needs 0 <= low <= 1 <= high < inf and low < high, got low = {self.low}, "
                f"high = {self.high}: the weight is 1 where sampler and trainer agree, which must be left "
                "alone, and without an upper bound one unlikely token could outweigh a whole update"
            )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"old_logprobs_T"})

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Columns of a whole step's batch; call once, before it is cut into updates.

        ``correction_T`` float64, the factor, 1 where masked; ``correction_side_T`` int8, 1 where w > high,
        -1 where w < low, else 0; ``correction_clamped_T`` bool, log-ratio clamped.
        """
        old_T, rollout_T = batch.old_logprobs_T.double(), batch.rollout_logprobs_T.double()
        log_T = torch.where(batch.mask_T, old_T - rollout_T, 0.0)
        if self.level == "sequence":
            sums_S = seq_sum(log_T, batch.seq_T, batch.num_sequences)
            log_T = torch.where(batch.mask_T, sums_S[batch.seq_T], 0.0)
        weight_T = torch.exp(log_T.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
        above_T, below_T = weight_T > self.high, weight_T < self.low
        if self.form == "truncate":
            factor_T = weight_T.clamp(self.low, self.high)
        else:
            factor_T = torch.where(above_T | below_T, 0.0, weight_T)
        return {
            "correction_T": factor_T.detach(),
            "correction_side_T": above_T.to(torch.int8) - below_T.to(torch.int8),
            "correction_clamped_T": log_T.abs() > LOG_RATIO_LIMIT,
        }

    def __str__(self) -> str:
        verb = "truncated to" if self.form == "truncate" else "masked outside"
        return f"{self.level} weights {verb} [{self.low:g}, {self.high:g}]"
