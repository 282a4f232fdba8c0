"""Attention for decoding on a CPU: key heads stay shared among query heads, never copied."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "trimtab_grouped"


def grouped_attention(
    layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Transformers' SDPA path, without its copy of every key head for each query head that shares it.

    query [B, H, Q, D], key and value [B, K, L, D], mask [B, 1, Q, L] bool -> [B, Q, H, D]. The output
    is the same to the bit. The copy costs more than the attention itself: ten times as much for 64
    rows of 300 tokens with three query heads a key head. Off the CPU nothing changes.
    """
    shared = query.shape[1] != key.shape[1]
    if mask is None or not shared or query.device.type != "cpu" or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(layer, query, key, value, mask, **kwargs)
    rows, heads, length, _ = query.shape
    if length == 1:  # the query heads of one key head become its queries: no head is then looped over twice
        query = query.view(rows, key.shape[1], -1, query.shape[3])
    attended = nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=kwargs.get("dropout", 0.0),
        scale=kwargs.get("scaling"),
        enable_gqa=length > 1,
    )
    return attended.reshape(rows, heads, length, -1).transpose(1, 2).contiguous(), None


def use_grouped_attention(module: PreTrainedModel) -> None:
    """Take ``grouped_attention`` wherever the model would take transformers' plain SDPA."""
    if module.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        module.set_attn_implementation(NAME)
