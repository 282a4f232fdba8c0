"""The policy term: a ratio under a trust region."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.objectives.ratio import Ratio
from trimtab.objectives.surrogate import Surrogate
from trimtab.types import Batch, ModelOutput, Trace


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """loss_t = -surrogate(ratio_t, A_t, log pi_t), 0 where masked; times ``correction_T`` where there is one.

    Masked tokens' log-probabilities and advantages are replaced before they are used, so that whatever
    stands there (padding, tool output, NaN) reaches neither value nor gradient. The correction's factor
    (see ``correction.py``) is a constant of the step, and the gate does not contain it.
    Trace: ``ratio_T``, ``gate_T`` (see ``surrogate.py``) and ``clamped_T``, detached.
    """

    ratio: Ratio
    surrogate: Surrogate

    @property
    def name(self) -> str:
        return "policy"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"old_logprobs_T", "advantages_T"})

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        logprobs_T = torch.where(batch.mask_T, out.logprobs_T, 0.0)
        adv_T = torch.where(batch.mask_T, batch.advantages_T, 0.0).to(logprobs_T.dtype)
        ratio_T, clamped_T = self.ratio(logprobs_T, batch)
        loss_T = -self.surrogate(ratio_T, adv_T, logprobs_T)
        factor_T = batch.columns.get("correction_T")
        if factor_T is not None:
            loss_T = loss_T * factor_T.to(loss_T.dtype)
        seen_T = ratio_T.detach()
        gate_T = self.surrogate.gate(seen_T, adv_T)
        return loss_T, Trace(ratio_T=seen_T, gate_T=gate_T, clamped_T=clamped_T)
