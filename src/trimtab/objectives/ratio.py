"""How far the policy has moved since it sampled: three ratios between pi and pi_old.

With l_t = log pi(y_t) - log pi_old(y_t), m_t the mask and |y| = sum m_t the trained tokens of an answer:

    token            r_t  = exp(l_t)
    sequence         s    = exp(sum_t m_t l_t / |y|)       the same for every token of the answer
    sequence-token   s_t  = sg[s] * pi_t / sg[pi_t]        value s, gradient of token t's own l_t only

A masked token's l is set to 0 before anything is computed from it (masking after exp would let an
overflow through as 0 * inf), and what goes into exp is clamped to +-LOG_RATIO_LIMIT. The clamp stops
the gradient there, so the clamped tokens are returned and counted. NaN is neither masked away on
trained tokens nor clamped: it stays visible.

Source: token, arXiv 1707.06347 eq. 6; sequence, arXiv 2507.18071 eq. 7; sequence-token, its eq. 14.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.ops.kl import LOG_RATIO_LIMIT
from trimtab.ops.segments import seq_mean
from trimtab.types import Batch

Ratio = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""(logprobs_T, batch) -> (ratio_T, clamped_T bool). Masked tokens get ratio 1 and are never clamped."""


def token_ratio(logprobs_T: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """r_t = exp(l_t), each token's own. Needs ``old_logprobs_T``."""
    return _exp_clamped(_log_ratio(logprobs_T, batch))


def sequence_ratio(logprobs_T: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """s = exp(mean of l over the answer's trained tokens), given to each of them.

    The length in the mean is what makes answers of different length comparable: the plain product
    of 1000 token ratios of 1.001 is 2.7, their geometric mean 1.001. Needs ``old_logprobs_T``.
    """
    log_T = _log_ratio(logprobs_T, batch)
    mean_S = seq_mean(log_T, batch.mask_T, batch.seq_T, batch.num_sequences)
    return _exp_clamped(torch.where(batch.mask_T, mean_S[batch.seq_T], 0.0))


def sequence_token_ratio(logprobs_T: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sequence ratio's value with each token's own gradient: d s_t / d log pi_t = s.

    Where every token of an answer has the same advantage, the answer's gradient is the one of
    ``sequence_ratio``; where advantages differ, token t's moves token t only. Needs ``old_logprobs_T``.
    """
    ratio_T, clamped_T = sequence_ratio(logprobs_T.detach(), batch)
    own_T = torch.where(batch.mask_T & ~clamped_T, logprobs_T - logprobs_T.detach(), 0.0)
    return ratio_T * torch.exp(own_T), clamped_T


RATIOS: dict[str, Ratio] = {
    "token": token_ratio,
    "sequence": sequence_ratio,
    "sequence-token": sequence_token_ratio,
}


def _log_ratio(logprobs_T: Tensor, batch: Batch) -> Tensor:
    return torch.where(batch.mask_T, logprobs_T - batch.old_logprobs_T.to(logprobs_T.dtype), 0.0)


def _exp_clamped(log_T: Tensor) -> tuple[Tensor, Tensor]:
    clamped_T = log_T.detach().abs() > LOG_RATIO_LIMIT
    return torch.exp(log_T.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)), clamped_T
