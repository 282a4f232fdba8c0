"""Models whose parameters lie in shards over ranks: how they are cut, read, and put together again.

    Root                      gathered at the start of a pass, kept until its gradients are summed: embedding,
      policy                  last norm, output layer, critic
        layer 1 .. n          gathered when it runs, dropped, gathered again for its gradient
      critic

A whole pass (backbone, output layer in chunks, critic) runs inside the root's forward call. So weights
outside the layers are there whenever a part of the model is called by itself, also where one tensor is both
embedding and output layer, and need no hooks of their own.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from trimtab.models.lora import Entry, entries, merged
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.sharded_group import Group
from trimtab.trainer.sharing import Cost
from trimtab.types import Batch, ModelOutput

Result = TypeVar("Result")
EXACT = (torch.float32, torch.float64)


class Root(nn.Module):
    """The modules that are sharded together. Calling it runs a function while all but the layers is there."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(dict(parts))
        self.used = False

    def forward(self, run: Callable[[], Result]) -> Result:
        self.used = True
        return run()


def shard(parts: Mapping[str, nn.Module], mesh: DeviceMesh, *, apart: Iterable[nn.Module] = ()) -> Root:
    """Cut the parameters of these modules over the mesh, in place, layer by layer and the rest together.

    What is trained gets float32 shards whatever dtype it had, computes in the dtype it had, and has its
    gradients summed over ranks in float32. What is frozen keeps its dtype. apart: modules that are gathered
    by themselves, because their parameters have another dtype than the rest.
    """
    root = Root(parts)
    lower = {p.dtype for p in root.parameters() if p.requires_grad and p.dtype not in EXACT}
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if lower:
        policy = MixedPrecisionPolicy(
            param_dtype=lower.pop(), reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        for parameter in root.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    for module in apart:
        fully_shard(module, mesh=mesh)
    for layer in layers_of(root):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(root, mesh=mesh, mp_policy=policy)
    for module in sharded(root):
        sum_gradients(module)
    return root


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The outermost layers that transformers can compute again by themselves; empty where it knows none."""
    if isinstance(module, GradientCheckpointingLayer):
        return [module]
    return [layer for child in module.children() for layer in layers_of(child)]


def sharded(root: nn.Module) -> list[FSDPModule]:
    """The modules below ``root`` whose parameters travel together, itself among them."""
    return [module for module in root.modules() if isinstance(module, FSDPModule)]


def sum_gradients(module: FSDPModule) -> None:
    """Have ranks' gradients added up; FSDP's own way, their mean, is for losses that are means of ranks."""
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)


def settle(root: Root) -> None:
    """Leave every parameter sharded, whatever a pass has left behind; before weights are touched.

    A pass without gradients would else keep the root's gathered copies, and the next would read them stale.
    """
    if root.used:
        cast("Any", root).reset_iter_state()


def local_of(tensor: Tensor) -> Tensor:
    """This rank's rows of a parameter or gradient, as a plain tensor on the same memory."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def whole_of(tensor: Tensor) -> Tensor:
    """A tensor with the rows of all ranks; every rank must ask for it."""
    return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor.detach()


@dataclass(frozen=True, slots=True, eq=False)
class InRoot:
    """A reader whose model is sharded below ``root``; all ranks call it at the same time."""

    reader: Reader
    root: Root

    @property
    def cost(self) -> Cost | None:
        return self.reader.cost

    @property
    def routers(self) -> Sequence[nn.Module]:
        return self.reader.routers

    def __call__(self, batch: Batch, asked: Asked) -> tuple[ModelOutput, Tensor | None]:
        if self.routers:  # an expert that no token of this rank has chosen must still take part in the sum
            for module in sharded(self.root):
                module.set_reduce_scatter_unused_params(asked.policy_grad, recurse=False)

        def read() -> tuple[ModelOutput, Tensor | None]:
            out, bootstrap_S = self.reader(batch, asked)
            return dataclasses.replace(out, values_T=_own(out.values_T)), _own(bootstrap_S)

        return self.root(read)


def _own(tensor: Tensor | None) -> Tensor | None:
    """Not a view: FSDP hangs its hooks on what a pass gives out, and a view can lose them."""
    return tensor.clone() if tensor is not None and tensor._is_view() else tensor


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The parameters of a sharded module under their own names, tied ones once, whole, one at a time; where a
    layer has an adapter, the weight with its product.

    Every rank must iterate it at the same time, and to its end: where one stops early, closing the iterator
    has it take part in the rest all the same. dtypes: in which each is given out. group: told of faults.
    """

    module: nn.Module
    dtypes: Mapping[str, torch.dtype]
    group: Group | None = None

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        left = iter(list(entries(self.module)))
        try:
            for entry in left:
                yield entry.name, self._whole(entry)
        finally:
            for entry in left:
                self._whole(entry)

    def outline(self) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """Name, dtype and shape of what iterating will yield, known without gathering anything."""
        return [(one.name, self.dtypes[one.name], tuple(one.weight.shape)) for one in entries(self.module)]

    def _whole(self, entry: Entry) -> Tensor:
        weight = self._gather(entry.weight).to(self.dtypes[entry.name])
        if entry.layer is None:
            return weight
        a, b = (
            self._gather(part).to(self.dtypes[f"{entry.layer_name}.{kind}"]) for kind, part in entry.added()
        )
        return merged(weight, a, b, entry.layer.scale)

    def _gather(self, parameter: Tensor) -> Tensor:
        with nullcontext() if self.group is None else self.group.watched("publish"):
            return whole_of(parameter)
