"""How much each token counts: the weights of a whole update, computed once, in float64.

The loss is sum_T weights_T * loss_T. With m the mask, |y_i| = sum m the trained tokens of answer i, N the
answers and P the prompts that have a trained token:

    token-mean                m_t / sum_i |y_i|              every token counts the same
    seq-mean-token-mean       m_t / (N |y_i|)                every answer counts the same
    seq-mean-token-sum        m_t / N                        long answers count more
    seq-mean-token-sum-norm   m_t / (N horizon)              the same, over a constant length
    prompt-mean               m_t / (P sum_{j of p} |y_j|)   every prompt counts the same
    token-sum                 m_t                            grows with the batch

token-mean, seq-mean-token-mean and prompt-mean add up to 1. Answers and prompts without a trained token
are not counted in N and P; a batch without any gets weights of 0, never NaN. Because the weights
belong to the update and travel with its tokens, cutting it into micro-batches, padding it, reordering
it or spreading it over ranks cannot change the gradient.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import SettingError, nearest
from trimtab.objectives.objective import Aggregate
from trimtab.ops.segments import seq_sum
from trimtab.types import Batch


def token_mean(batch: Batch) -> Tensor:
    """m_t / all trained tokens. Source: DAPO, arXiv 2503.14476, eq. 8 and 12, over the whole update."""
    mask_T = batch.mask_T.to(torch.float64)
    return mask_T / mask_T.sum().clamp(min=1.0)


def seq_mean_token_mean(batch: Batch) -> Tensor:
    """m_t / (N |y_i|). Source: GRPO, arXiv 2402.03300, eq. 3."""
    trained_S = _trained(batch)
    return _over(batch, _count(trained_S > 0) * trained_S)


def seq_mean_token_sum(batch: Batch) -> Tensor:
    """m_t / N."""
    trained_S = _trained(batch)
    return _over(batch, _count(trained_S > 0).expand_as(trained_S))


@dataclass(frozen=True, slots=True)
class SeqMeanTokenSumNorm:
    """m_t / (N horizon). ``horizon``: a constant number of tokens, usually the longest answer allowed.

    Source: Dr. GRPO, arXiv 2503.20783, section 3: its listing divides by this constant, its formula does
    not. The width of a padded batch is no substitute: it changes from batch to batch.
    """

    horizon: int

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise SettingError(f"seq-mean-token-sum-norm needs horizon >= 1 token, got {self.horizon}")

    def __call__(self, batch: Batch) -> Tensor:
        return seq_mean_token_sum(batch) / self.horizon


def prompt_mean(batch: Batch) -> Tensor:
    """m_t / (P trained tokens of the prompt's answers). DAPO's eq. 8 read within one prompt."""
    trained_P = torch.zeros(len(batch.prompts_P), dtype=torch.float64, device=batch.group_S.device)
    trained_P = trained_P.index_add(0, batch.group_S, _trained(batch))
    return _over(batch, (_count(trained_P > 0) * trained_P)[batch.group_S])


def token_sum(batch: Batch) -> Tensor:
    """m_t: no denominator, so the step size grows with the number of tokens."""
    return batch.mask_T.to(torch.float64)


AGGREGATES: dict[str, Aggregate | type[SeqMeanTokenSumNorm]] = {
    "token-mean": token_mean,
    "seq-mean-token-mean": seq_mean_token_mean,
    "seq-mean-token-sum": seq_mean_token_sum,
    "seq-mean-token-sum-norm": SeqMeanTokenSumNorm,
    "prompt-mean": prompt_mean,
    "token-sum": token_sum,
}


def aggregate_named(name: str, horizon: int | None = None) -> Aggregate:
    """The aggregate of this name. Raises SettingError: unknown name, horizon missing or of no use."""
    if name not in AGGREGATES:
        raise SettingError(f"unknown aggregate {name!r}{nearest(name, AGGREGATES)}")
    found = AGGREGATES[name]
    if isinstance(found, type):
        if horizon is None:
            raise SettingError(f"aggregate {name} needs a horizon, the constant length it divides by")
        return found(horizon)
    if horizon is not None:
        raise SettingError(f"aggregate {name} takes no horizon; seq-mean-token-sum-norm does")
    return found


def aggregate_name(aggregate: Aggregate) -> str | None:
    """The name ``aggregate_named`` would take; None for a function of one's own."""
    return next(
        (name for name, known in AGGREGATES.items() if aggregate in (known,) or type(aggregate) is known),
        None,
    )


def _trained(batch: Batch) -> Tensor:
    return seq_sum(batch.mask_T.to(torch.float64), batch.seq_T, batch.num_sequences)


def _count(present: Tensor) -> Tensor:
    return present.to(torch.float64).sum()


def _over(batch: Batch, divisor_S: Tensor) -> Tensor:
    """Trained tokens share 1 / divisor of their answer; answers without one have nobody to share."""
    return torch.where(batch.mask_T, 1.0 / divisor_S.clamp(min=1.0)[batch.seq_T], 0.0)
