"""LoRA: a frozen base, and beside each chosen linear layer a product of two small matrices that is trained.

    y = x W^T + b + scale * (x A^T) B^T        A [rank, in], B [out, rank], scale = alpha / rank

B begins at 0, so the first policy is the base to the bit. The layer keeps the names of the one it stands for
(``weight``, ``bias``) and adds ``lora_A`` and ``lora_B``; whoever needs one plain weight asks for

    W + scale * B A                            computed in float32, then rounded to the dtype of W

and never writes it anywhere: the base stays as it was loaded. Sources: Hu et al., "LoRA: Low-Rank Adaptation
of Large Language Models" (2021); alpha / sqrt(rank): Kalajdzievski, "A Rank Stabilization Scaling Factor for
Fine-Tuning with LoRA" (2023).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn

from trimtab.errors import SettingError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALL_LINEAR = "all-linear"
SCALINGS = ("rank", "root-rank")
ADDED = ("lora_A", "lora_B")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """The ``[model.lora]`` table of a recipe; without one all weights are trained.

    rank: of the product, > 0.
    alpha: how strongly it acts, > 0; see ``scaling``.
    targets: ``all-linear`` (every linear layer but the output layer), or names such as ``["q_proj"]``,
        whole or from a dot on.
    scaling: the product is multiplied by alpha / rank ("rank") or alpha / sqrt(rank) ("root-rank").
    dropout: only 0. Old and new log-probabilities must come from the same function; with dropout each pass
        would be another one, and the ratio of an unchanged policy would not be 1.
    """

    rank: int
    alpha: float = 32.0
    targets: str | tuple[str, ...] = ALL_LINEAR
    scaling: Literal["rank", "root-rank"] = "rank"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise SettingError(f"model.lora.rank must be >= 1, got {self.rank}")
        if not (math.isfinite(self.alpha) and self.alpha > 0.0):
            raise SettingError(f"model.lora.alpha must be a number > 0, got {self.alpha}")
        if self.scaling not in SCALINGS:
            raise SettingError(
                f"model.lora.scaling: unknown value {self.scaling!r}{nearest(self.scaling, SCALINGS)}"
            )
        if self.dropout:
            raise SettingError(
                f"model.lora.dropout must be 0, got {self.dropout}: with dropout the sampler's, the old and "
                "the new log-probabilities would come from different functions; leave it out"
            )
        if isinstance(self.targets, str) and self.targets != ALL_LINEAR:
            raise SettingError(
                f'model.lora.targets is "{ALL_LINEAR}" or a list of names, got {self.targets!r}; '
                f'write ["{self.targets}"] for one kind of layer'
            )
        if not self.targets:
            raise SettingError("model.lora.targets names no layer; leave it out to take all linear layers")

    @property
    def scale(self) -> float:
        """What the product B A is multiplied by."""
        return self.alpha / (self.rank if self.scaling == "rank" else math.sqrt(self.rank))


class LoraLinear(nn.Linear):
    """A linear layer whose weight is frozen, with a trained product beside it. Made by ``of``.

    active: whether the product is added; off, the layer is the base's.
    """

    lora_A: nn.Parameter
    lora_B: nn.Parameter

    def __init__(self, base: nn.Linear, config: LoraConfig, random: torch.Generator) -> None:
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale, self.active = config.scale, True
        bound = 1.0 / math.sqrt(base.in_features)
        first = torch.rand(config.rank, base.in_features, generator=random).mul_(2.0).sub_(1.0).mul_(bound)
        self.lora_A = nn.Parameter(first.to(base.weight))
        self.lora_B = nn.Parameter(base.weight.new_zeros(base.out_features, config.rank))
        self.train(base.training)

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        out = nn.functional.linear(input, self.weight, self.bias)
        if not self.active:
            return out
        inner = nn.functional.linear(input, self.lora_A)
        return out + nn.functional.linear(inner, self.lora_B) * self.scale


def merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale * B A [out, in], computed in float32 or wider, in the dtype of W. Differentiable."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    return torch.addmm(weight.to(wide), b.to(wide), a.to(wide), alpha=scale).to(weight.dtype)


def weight_of(linear: nn.Linear) -> Tensor:
    """The one weight that a linear layer multiplies by: its own, or with the product of its adapter in it."""
    if isinstance(linear, LoraLinear) and linear.active:
        return merged(linear.weight, linear.lora_A, linear.lora_B, linear.scale)
    return linear.weight


def is_linear(part: nn.Module) -> bool:
    """Whether a module is a linear layer and nothing else, with an adapter or without."""
    return type(part) in (nn.Linear, LoraLinear)


def has_adapters(module: nn.Module) -> bool:
    """Whether any layer has one."""
    return any(isinstance(part, LoraLinear) for part in module.modules())


@contextlib.contextmanager
def adapters_off(module: nn.Module) -> Iterator[None]:
    """Inside, the module is its base."""
    layers = [part for part in module.modules() if isinstance(part, LoraLinear) and part.active]
    for layer in layers:
        layer.active = False
    try:
        yield
    finally:
        for layer in layers:
            layer.active = True


def find_targets(module: PreTrainedModel, config: LoraConfig) -> list[str]:
    """The full names of the layers that get an adapter, in the module's order.

    Raises: SettingError for a name that no linear layer of the model has.
    """
    output = module.get_output_embeddings()
    inside = {id(part) for part in module.base_model.modules()} - {id(output)}
    every = [
        (name, part) for name, part in module.named_modules(remove_duplicate=False) if id(part) in inside
    ]
    linear = [name for name, part in every if is_linear(part)]
    if len({id(part) for _, part in every if is_linear(part)}) < len(linear):
        raise SettingError(
            f"model.lora: {type(module).__name__} uses one linear layer in several places; train it whole"
        )
    kinds = sorted({name.rsplit(".", 1)[-1] for name in linear})
    if not linear:
        raise SettingError(
            f"model.lora: {type(module).__name__} has no linear layers (of type torch.nn.Linear) to adapt; "
            "leave model.lora out"
        )
    if config.targets == ALL_LINEAR:
        return linear
    for target in config.targets:
        if not any(_means(target, name) for name in linear):
            raise SettingError(
                f"model.lora.targets: the model has no linear layer {target!r}{nearest(target, kinds)}; "
                f'it has {", ".join(kinds)}, or take "{ALL_LINEAR}"'
            )
    return [name for name in linear if any(_means(target, name) for target in config.targets)]


def _means(target: str, name: str) -> bool:
    return name == target or name.endswith(f".{target}")


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of a model: how they were made, and on what.

    base: fingerprint of the frozen weights. dtype: in which they, and the adapters, compute.
    """

    config: LoraConfig
    names: tuple[str, ...]
    base: str
    dtype: str


def add_adapters(module: PreTrainedModel, config: LoraConfig, *, seed: int) -> Adapters:
    """Freeze the module and put adapters beside its layers, in place. ``seed`` draws the first A.

    Raises: SettingError for layers that the model does not have, or where it has adapters already.
    """
    if has_adapters(module):
        raise SettingError("this model has adapters already; load it anew for another trainer")
    names, base = find_targets(module, config), fingerprint(module)
    module.requires_grad_(False)
    random = torch.Generator().manual_seed(seed % 2**63)
    for name in names:
        above, _, leaf = name.rpartition(".")
        layer = LoraLinear(cast(nn.Linear, module.get_submodule(name)), config, random)
        setattr(module.get_submodule(above), leaf, layer)
    return Adapters(config, tuple(names), base, str(module.dtype).removeprefix("torch."))


def adapter_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    """All A and B by their names in the module."""
    return {f"{entry.layer_name}.{kind}": part for entry in entries(module) for kind, part in entry.added()}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A parameter of the model as it is without adapters, with the layer whose product belongs to it."""

    name: str
    weight: nn.Parameter
    layer: LoraLinear | None

    @property
    def layer_name(self) -> str:
        return self.name.rpartition(".")[0]

    def added(self) -> tuple[tuple[str, nn.Parameter], ...]:
        """("lora_A", A) and ("lora_B", B), or nothing."""
        layer = self.layer
        return () if layer is None else (("lora_A", layer.lora_A), ("lora_B", layer.lora_B))


def entries(module: nn.Module) -> Iterator[Entry]:
    """The parameters of a module without adapters, tied ones once, in its order."""
    layers = {name: part for name, part in module.named_modules() if isinstance(part, LoraLinear)}
    for name, parameter in module.named_parameters():
        above, _, leaf = name.rpartition(".")
        layer = layers.get(above)
        if layer is None or leaf not in ADDED:
            yield Entry(name, parameter, layer if leaf == "weight" else None)


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The live weights of a module by name, tied ones once: parameters themselves, and where a layer has an
    adapter the weight with its product, made anew by each iteration. Read them before the next update.
    """

    module: nn.Module

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for entry in entries(self.module):
            tensor = entry.weight.detach()
            if entry.layer is not None:
                a, b = (part.detach() for _, part in entry.added())
                tensor = merged(tensor, a, b, entry.layer.scale)
            yield entry.name, tensor

    def outline(self) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """Name, dtype and shape of what iterating will yield."""
        return [(one.name, one.weight.dtype, tuple(one.weight.shape)) for one in entries(self.module)]


@torch.no_grad()
def put_merged(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Let a module compute with these weights, which have products in them: its adapters become 0.

    For a module that is thrown away afterwards, since its base is written over.
    """
    for entry in entries(module):
        entry.weight.copy_(weights[entry.name])
        for _, part in entry.added()[1:]:
            part.zero_()


def fingerprint(module: nn.Module) -> str:
    """SHA-256 over names, shapes and bytes of all parameters but the adapters."""
    found = hashlib.sha256()
    for entry in entries(module):
        tensor = entry.weight.detach()
        found.update(f"{entry.name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
