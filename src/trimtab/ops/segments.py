"""Sums and means over the sequences of a packed batch.

A packed batch holds the tokens of S sequences one after another; ``seq_T`` says which sequence a
token belongs to. A sequence may have no token at all: its sum and its mean are 0.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor


def seq_sum(x_T: Tensor, seq_T: Tensor, num_sequences: int) -> Tensor:
    """Sum of ``x_T`` over each sequence: [T] -> [S], same dtype, differentiable.

    Half-precision input is added up in float32: 257 ones in bfloat16 would add up to 256.
    """
    wide_T = x_T.float() if x_T.dtype in (torch.float16, torch.bfloat16) else x_T
    total_S = wide_T.new_zeros(num_sequences).index_add(0, seq_T, wide_T)
    return total_S.to(x_T.dtype)


def seq_mean(x_T: Tensor, mask_T: Tensor, seq_T: Tensor, num_sequences: int) -> Tensor:
    """Mean of ``x_T`` over the unmasked tokens of each sequence: [T] -> [S], differentiable.

    Masked entries are replaced before they are added, so a NaN there cannot reach value or gradient.
    """
    kept_T = torch.where(mask_T, x_T, 0.0)
    count_S = seq_sum(mask_T.to(torch.float64), seq_T, num_sequences).clamp(min=1.0)
    return seq_sum(kept_T, seq_T, num_sequences) / count_S.to(x_T.dtype)
