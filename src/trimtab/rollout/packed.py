"""One decoding step of a Llama-like model on a CPU, from weights laid out for products with few rows.

A step of 32 rows reads every weight once and computes little with it, so two things decide its speed: how
the weights lie in memory, and how many operators there are. ``PackedModel`` holds the weights as oneDNN
wants them (for few rows nearly twice as fast as the plain product), with query, key and value in one
product, and the activation, the gate and both residual sums inside the products that feed them.

    x' = x + Wo attend(rope(Wq n), rope(Wk n), Wv n),      n = rmsnorm(x)
    y  = x' + Wdown (silu(Wgate m) * Wup m),               m = rmsnorm(x')

It computes what the module computes, rounding apart; ``agreement`` checks that before it is used. Packed
weights are copies: whoever holds them calls ``refresh`` when the module's weights have changed.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trimtab.models.lora import is_linear, weight_of

ROWS = 64
"""Rows that the layout is made for; measured, every number from 8 on gives one that suits 1 to 256 rows."""

ARCHITECTURES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types whose layers are of this kind."""


class States(Protocol):
    """Keys and values of the rows, and the attention over them."""

    def attend(self, layer: int, scaling: float, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Take one token a row in and attend: queries [R, H, D], keys and values [R, K, D] -> [R, H * D].

        softmax(scaling * queries . keys) values, in float32.
        """
        ...


class Product:
    """``x @ weight.T + bias`` for few rows, with the weight packed by oneDNN."""

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None = None) -> None:
        whole = weights[0] if len(weights) == 1 else torch.cat(tuple(weights))
        self.packed = _onednn()._reorder_linear_weight(whole.detach().contiguous(), ROWS)
        self.bias = bias

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        return _onednn()._linear_pointwise(x, self.packed, self.bias, activation, [], "")

    def combined(self, x: Tensor, other: Tensor, how: str) -> Tensor:
        """The product and then "add" or "mul" with ``other`` of its shape, in one pass."""
        return _onednn()._linear_pointwise.binary(x, other, self.packed, self.bias, how)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """x / rms(x) * weight, over the last dimension."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> Norm:
        return cls(module.weight.detach(), module.variance_epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The rotation by each row's position: cos and (with the halves' signs) sin, [R, 1, D] float32."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, module: Any, hidden: Tensor, positions_R: Tensor) -> Turn:
        cos, sin = module.base_model.rotary_emb(hidden[:, None], position_ids=positions_R[:, None])
        sign = torch.ones(sin.shape[-1])
        sign[: len(sign) // 2] = -1.0
        return cls(cos.float(), sin.float() * sign)

    def __call__(self, heads: Tensor) -> Tensor:
        """Heads [R, N, D] of any dtype, turned, float32."""
        half = heads.shape[-1] // 2
        return torch.addcmul(heads * self.cos, heads.roll(half, -1), self.sin)


class Layer:
    """One layer, its weights packed."""

    def __init__(self, module: Any) -> None:
        attention, mlp = module.self_attn, module.mlp
        self.size, self.scaling = attention.head_dim, attention.scaling
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.queries, self.keys = (p.out_features // self.size for p in projections[:2])
        biases = [p.bias.detach() for p in projections if p.bias is not None]
        self.attention_norm = Norm.of(module.input_layernorm)
        self.project = Product([weight_of(p) for p in projections], torch.cat(biases) if biases else None)
        head_norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self.head_norms = [Norm.of(norm) for norm in head_norms if norm is not None]
        self.out = _product(attention.o_proj)
        self.mlp_norm = Norm.of(module.post_attention_layernorm)
        self.gate, self.up, self.down = (_product(p) for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))

    def __call__(self, hidden: Tensor, turn: Turn, layer: int, states: States) -> Tensor:
        """hidden [R, W] -> [R, W]."""
        heads = self.project(self.attention_norm(hidden)).unflatten(1, (-1, self.size))
        turned, values = heads[:, : self.queries + self.keys], heads[:, self.queries + self.keys :]
        if self.head_norms:
            both = turned.split((self.queries, self.keys), 1)
            turned = torch.cat([norm(part) for norm, part in zip(self.head_norms, both, strict=True)], 1)
        turned = turn(turned)
        queries, keys = turned[:, : self.queries], turned[:, self.queries :]
        attended = states.attend(layer, self.scaling, queries, keys, values)
        hidden = self.out.combined(attended.to(hidden.dtype), hidden, "add")
        inner = self.mlp_norm(hidden)
        inner = self.up.combined(inner, self.gate(inner, "swish"), "mul")
        return self.down.combined(inner, hidden, "add")


class PackedModel:
    """The weights of a module, packed, and the step made of them."""

    def __init__(self, module: PreTrainedModel, vocab_size: int) -> None:
        self.module, self.vocab_size = module, vocab_size
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the module's weights as they are now."""
        inner = cast(Any, self.module.base_model)
        self.embedding = cast(Any, self.module.get_input_embeddings())
        self.layers = [Layer(layer) for layer in inner.layers]
        self.norm = Norm.of(inner.norm)
        head = cast(Any, self.module.get_output_embeddings())
        self.head = Product([head.weight[: self.vocab_size]])

    def step(self, ids_R: Tensor, positions_R: Tensor, states: States) -> Tensor:
        """Logits [R, V] after one more token a row, in the weights' dtype."""
        hidden = self.embedding(ids_R)
        turn = Turn.of(self.module, hidden, positions_R)
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden, turn, number, states)
        return self.head(self.norm(hidden))


def can_pack(module: PreTrainedModel) -> bool:
    """Whether the module looks like what ``PackedModel`` computes, on a machine that can pack it.

    A necessary condition. What the module computes is compared before its packed weights are used.
    """
    config, inner = module.config, cast(Any, module.base_model)
    return (
        config.model_type in ARCHITECTURES
        and module.device.type == "cpu"
        and _can_multiply(module.dtype)
        and all(p.dtype is module.dtype for p in module.parameters())
        and getattr(config, "hidden_act", None) == "silu"
        and _sees_everything(config)
        and inner is not module
        and hasattr(inner, "layers")
        and hasattr(inner, "rotary_emb")
        and all(is_linear(p) for layer in inner.layers for p in _linears(layer))
        and type(module.get_output_embeddings()) is nn.Linear
        and cast(Any, module.get_output_embeddings()).bias is None
    )


def _sees_everything(config: Any) -> bool:
    """No sliding window, which the shared prompts know nothing of."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return set(kinds) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None


def _linears(layer: Any) -> Sequence[nn.Module]:
    a, m = layer.self_attn, layer.mlp
    return (a.q_proj, a.k_proj, a.v_proj, a.o_proj, m.gate_proj, m.up_proj, m.down_proj)


def _product(linear: nn.Linear) -> Product:
    return Product([weight_of(linear)], None if linear.bias is None else linear.bias.detach())


def _onednn() -> Any:
    return torch.ops.mkldnn


def _can_multiply(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available() or not hasattr(_onednn(), "_linear_pointwise"):
        return False
    if dtype is torch.bfloat16:
        return bool(_onednn()._is_mkldnn_bf16_supported())
    return dtype is torch.float32
