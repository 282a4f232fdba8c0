"""Decoders of the Llama kind over packed tokens: what transformers computes, in fewer and larger steps.

Llama, Mistral, Qwen2 and Qwen3 as transformers holds them, by their own parameters, at the moment of each
call. Whether a model is one of them is read from its parts and then tried on a few tokens, so that an
architecture that does anything else, or a module that something was wrapped around (foreign adapters,
sharding), is refused. A layer with an adapter of trimtab's is multiplied by its weight and product in one.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trimtab.models import Backbone, LoadedModel
from trimtab.models.lora import LoraLinear, is_linear, weight_of
from trimtab.ops.packed_attention import Heads, block
from trimtab.ops.packed_layers import Attention, Tokens, attention_half, feed_forward_half
from trimtab.ops.packed_norm import normed_rows
from trimtab.trainer.packed import PackedTokens

KINDS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

IMPLEMENTATIONS = ("sdpa", "eager", "trimtab_grouped")
"""Attention that is full and causal without a mask."""

SMALLEST = 1 << 20
"""Parameters from which "auto" takes these passes. Smaller models gain little, and keep their weights to the
last bit.
"""

AGREES = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Hidden states may differ from transformers' by this share of their size before a model is refused."""

AGREES_LOW = 0.05
"""The same for a model in bfloat16 or float16."""


def is_wanted(model: LoadedModel, fast: str) -> bool:
    """Whether the setting ``trainer.fast`` asks for these passes with this model."""
    if fast == "auto":
        return sum(parameter.numel() for parameter in model.module.parameters()) >= SMALLEST
    return fast == "always"


@dataclass(frozen=True, slots=True, eq=False)
class PackedDecoder:
    """The backbone of ``module`` over packed tokens; ``weight`` of its output layer is all there is to that.

    recompute: keep only the input of each layer for the backward pass.
    """

    module: Any
    heads: Heads
    recompute: bool

    @classmethod
    def of(cls, model: LoadedModel, backbone: Backbone, *, recompute: bool = False) -> PackedDecoder | None:
        """None for a model that this cannot compute. Only on a CPU: a GPU has kernels of its own for this."""
        if model.device.type != "cpu" or not _is_plain(model.module):
            return None
        inner: Any = model.module.base_model
        attention = inner.layers[0].self_attn
        size = attention.head_dim
        heads = Heads(
            query=attention.q_proj.out_features // size, key=attention.k_proj.out_features // size, size=size
        )
        found = cls(model.module, heads, recompute)
        return found if _agrees(model, backbone, found) else None

    @property
    def weight(self) -> Tensor:
        return self.module.get_output_embeddings().weight

    def __call__(self, packed: PackedTokens) -> Tensor:
        """States [N, H] after the last norm."""
        inner = self.module.base_model
        embedding = inner.embed_tokens
        x = nn.functional.embedding(packed.ids_N, embedding.weight, embedding.padding_idx)
        cos, sin = (turn[0].contiguous() for turn in inner.rotary_emb(x, packed.positions_N[None]))
        half = self.heads.size // 2
        tokens = Tokens(cos_ND=cos[:, :half], sin_ND=sin[:, :half], blocks=tuple(packed.blocks))
        for layer in inner.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(self._layer, layer, x, tokens, use_reentrant=False, preserve_rng_state=False)
            else:
                x = self._layer(layer, x, tokens)
        return normed_rows(x, inner.norm.weight, inner.norm.variance_epsilon)

    def _layer(self, layer: Any, x_NH: Tensor, tokens: Tokens) -> Tensor:
        attention, inner = layer.self_attn, layer.mlp
        inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
        head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else ()
        norm = layer.input_layernorm
        x_NH = attention_half(
            x_NH,
            norm.weight,
            [weight_of(part) for part in inputs],
            [part.bias for part in inputs if part.bias is not None],
            [part.weight for part in head_norms],
            weight_of(attention.o_proj),
            shape=Attention(heads=self.heads, scale=attention.scaling, eps=norm.variance_epsilon),
            tokens=tokens,
        )
        norm = layer.post_attention_layernorm
        parts = (weight_of(part) for part in (inner.gate_proj, inner.up_proj, inner.down_proj))
        return feed_forward_half(x_NH, norm.weight, *parts, eps=norm.variance_epsilon)


def _is_plain(module: Any) -> bool:
    """Whether all parts are what their architecture makes them, and nothing hangs on them."""
    config = module.config
    if type(module).__name__ not in KINDS or config.hidden_act != "silu":
        return False
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return False
    if set(getattr(config, "layer_types", None) or ("full_attention",)) != {"full_attention"}:
        return False
    if config._attn_implementation not in IMPLEMENTATIONS or module.get_output_embeddings().bias is not None:
        return False
    return all(map(_untouched, module.modules())) and all(map(_is_plain_layer, module.base_model.layers))


def _untouched(part: nn.Module) -> bool:
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    known = isinstance(part, LoraLinear) or type(part).__module__.startswith(("transformers.", "torch.nn."))
    return (
        known
        and not any(hooks)
        and all(type(p) is nn.Parameter for p in part._parameters.values() if p is not None)
    )


def _is_plain_layer(layer: Any) -> bool:
    attention, inner = layer.self_attn, layer.mlp
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    without = (attention.o_proj, inner.gate_proj, inner.up_proj, inner.down_proj)
    biased = {part.bias is not None for part in inputs}
    return (
        all(map(is_linear, (*inputs, *without)))
        and all(part.bias is None for part in without)
        and len(biased) == 1
    )


@torch.no_grad()
def _agrees(model: LoadedModel, backbone: Backbone, decoder: PackedDecoder) -> bool:
    """Whether both give the same states for two answers to one prompt."""
    ids = torch.arange(9) % model.vocab_size
    rows = torch.stack([ids[[0, 1, 2, 3, 4, 5]], ids[[0, 1, 2, 6, 7, 8]]])
    packed = PackedTokens(
        ids_N=ids,
        positions_N=torch.tensor([0, 1, 2, 3, 4, 5, 3, 4, 5]),
        blocks=[block(0, [3], ()), block(3, [3, 3], ((0, 3),))],
        state_T=ids[:0],
        last_S=ids[:0],
    )
    try:
        alone, together = backbone(rows, None, None).double(), decoder(packed).double()
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return False
    expected = torch.cat([alone[0], alone[1, 3:]])
    slack = AGREES.get(model.dtype, AGREES_LOW) * expected.abs().max()
    return together.shape == expected.shape and bool((together - expected).abs().max() <= slack)
