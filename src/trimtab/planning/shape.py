"""A model as far as cost goes: its weights, how many a token uses, and what a token leaves in the cache."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import DataError, SettingError
from trimtab.planning.figures import Origin

USUAL_VOCABULARY = 150_000
USUAL_HEAD = 128
USUAL_KV_HEADS = 8
WIDTH_BY_DEPTH = 128
"""Hidden units for each layer, where only a number of parameters is known."""

EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder with grouped-query attention and gated feed-forward layers, dense or with experts.

    parameters: all weights, tied ones once. active: those that one token goes through, the embedding's
        lookup apart, the output layer included.
    expert_share: share of ``parameters`` that lies in routed experts; 0 for a dense model.
    routed: share of the routed experts that one token uses, in (0, 1].
    inner: feed-forward units that one token goes through. expert_inner: those of them in routed experts.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    parameters: int
    active: int
    expert_share: float = 0.0
    routed: float = 1.0
    expert_inner: int = 0
    origin: Origin = Origin.COMPUTED

    @property
    def cached_numbers(self) -> int:
        """Keys and values that one token leaves in the cache: 2 * layers * kv_heads * head_size."""
        return 2 * self.layers * self.kv_heads * self.head_size

    def adapters(self, rank: int, targets: str | tuple[str, ...]) -> int:
        """Numbers in the adapters of ``[model.lora]``: rank * (in + out) of each chosen layer, by the usual
        names of layers. Routed experts take none: transformers 5 holds them as one tensor, not as layers. In
        a mixture every layer counts as one with experts, also where the first ones are dense.
        """
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        units = self.inner - self.expert_inner
        sides = {
            "q_proj": self.hidden + queries,
            "k_proj": self.hidden + keys,
            "v_proj": self.hidden + keys,
            "o_proj": self.hidden + queries,
        }
        if units:
            sides |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), self.hidden + units)
        everything = isinstance(targets, str)
        kinds = set(sides) if everything else {name.rsplit(".", 1)[-1] for name in targets}
        return rank * self.layers * sum(size for name, size in sides.items() if name in kinds)

    @property
    def flops(self) -> float:
        """Floating-point operations of one token forwards, attention apart: 2 for each active weight."""
        return 2.0 * self.active

    @property
    def flops_per_pair(self) -> float:
        """Operations of one token forwards for each token it attends to: 4 * layers * heads * head_size."""
        return 4.0 * self.layers * self.heads * self.head_size


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a model's config.json describes, weights counted; biases are left out.

    Raises: DataError where a number is missing, or attention has latent keys, which are not modelled.
    """
    table = {**config, **(config.get("text_config") or {})}
    if table.get("kv_lora_rank"):
        raise DataError(
            f"{name}: attention with latent keys and values is not modelled; give --params, --active and the "
            "rest as numbers"
        )
    layers, hidden = _number(table, "num_hidden_layers", name), _number(table, "hidden_size", name)
    heads, vocabulary = _number(table, "num_attention_heads", name), _number(table, "vocab_size", name)
    kv_heads = int(table.get("num_key_value_heads") or heads)
    head = int(table.get("head_dim") or hidden // heads)
    dense_inner = _number(table, "intermediate_size", name)
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    experts = next((int(table[key]) for key in EXPERT_COUNTS if table.get(key)), 0)
    used = int(table.get("num_experts_per_tok") or 0) if experts else 0
    inner = int(table.get("moe_intermediate_size") or dense_inner) if experts else dense_inner
    shared = int(table.get("shared_expert_intermediate_size") or 0)
    shared += int(table.get("n_shared_experts") or 0) * inner
    plain = int(table.get("first_k_dense_replace") or 0) if experts else layers
    sparse = layers - plain
    embedding = vocabulary * hidden
    norms = layers * 2 * hidden + hidden
    common = layers * attention + plain * 3 * hidden * dense_inner + norms
    common += sparse * (3 * hidden * shared + hidden * experts)
    routed = sparse * experts * 3 * hidden * inner
    output = 0 if table.get("tie_word_embeddings", False) else embedding
    total = common + routed + embedding + output
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head,
        inner=dense_inner if not experts else used * inner + shared,
        vocabulary=vocabulary,
        parameters=total,
        active=common + embedding + (routed * used // experts if experts else 0),
        expert_share=routed / total,
        routed=used / experts if experts else 1.0,
        expert_inner=used * inner if experts else 0,
    )


def read_shape(path: str) -> ModelShape:
    """The shape of the model in a folder, or of ``embedded/NAME``. Nothing is downloaded.

    Raises: DataError where there is no config.json.
    """
    from trimtab.models import resolve_path  # torch comes with it

    file = Path(resolve_path(path)) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{path!r} is no folder with a readable config.json, so its size is unknown; give a local "
            "folder, or --params (and --active for a mixture of experts)"
        ) from None
    return shape_of_config(config, path)


def shape_of_numbers(parameters: float, active: float | None = None) -> ModelShape:
    """A usual shape of that many parameters; with ``active`` fewer, a mixture of experts.

        parameters - 2 * V * h = 12 * layers * h^2        h = 128 * layers

    Raises: SettingError for numbers that no model has.
    """
    used = parameters if active is None else active
    if not 1e5 <= used <= parameters <= 1e14:
        raise SettingError(
            "--params must be between 1e5 and 1e14 and --active at most as many, got "
            f"{parameters:g} and {used:g}"
        )
    layers = max(2, round((used / (12.0 * WIDTH_BY_DEPTH**2)) ** (1 / 3)))
    hidden = max(USUAL_HEAD, USUAL_HEAD * round(WIDTH_BY_DEPTH * layers / USUAL_HEAD))
    vocabulary = min(USUAL_VOCABULARY, int(used / (8 * hidden)) + 1)
    heads = hidden // USUAL_HEAD
    sparse, inner = parameters - used, int(8 * hidden / 3)
    routed = 1.0 if sparse <= 0.0 else max(1 / 256, 0.75 * used / (0.75 * used + sparse))
    return ModelShape(
        name=f"{parameters:.3g} parameters",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=min(USUAL_KV_HEADS, heads),
        head_size=USUAL_HEAD,
        inner=inner,
        vocabulary=vocabulary,
        parameters=int(parameters),
        active=int(used),
        expert_share=0.0 if sparse <= 0.0 else (0.75 * used + sparse) / parameters,
        routed=routed,
        expert_inner=0 if sparse <= 0.0 else inner,
        origin=Origin.ASSUMED,
    )


def number_of(text: str) -> float:
    """``7e9``, ``7B`` or ``600M`` as a number. Raises SettingError for anything else."""
    factor = SUFFIXES.get(text[-1:].upper(), 1.0)
    try:
        return float(text if factor == 1.0 else text[:-1]) * factor
    except ValueError:
        raise SettingError(f"a number of parameters looks like 7e9, 7B or 600M, got {text!r}") from None


def _number(table: Mapping[str, Any], key: str, name: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(
            f"{name}: its config.json has no usable {key!r} (got {value!r}); give --params instead"
        )
    return value
