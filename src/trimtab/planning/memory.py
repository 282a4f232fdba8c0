"""Bytes on one device: what a trainer and an engine hold, item by item, and how many answers fit."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.planning.costs import Assumptions
from trimtab.planning.hardware import GIB, Device
from trimtab.planning.lengths import Lengths
from trimtab.planning.shape import ModelShape
from trimtab.planning.workload import Split, Workload

CHUNK_BYTES = 512 << 20
"""Float32 logits that a trainer on a GPU holds at once."""

CHUNK_BYTES_CPU = 48 << 20
MASTER, MOMENTS, GRADIENT = 4.0, 8.0, 4.0
"""Bytes a weight of AdamW in float32: the weight itself, two moments, the gradient."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes by item on one device. ``total`` is their sum."""

    items: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.items.values())

    def __str__(self) -> str:
        parts = sorted(self.items.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)


def trainer_memory(
    shape: ModelShape, workload: Workload, trainers: int, weight_bytes: float, *, cpu: bool
) -> Held:
    """What one of T trainers holds at most. P weights, L layers, B tokens a micro-batch, w bytes a number:

    weights      w * P / T, where they are not their own float32 masters
    optimizer    (4 + 8) * P / T      gradients  4 * P / T
    gathered     T > 1: two layers and the embedding whole, w bytes each
    activations  w * B * a * L, or w * B * (h * L + a) with checkpointing,
                 a = 4 h + (2 heads + 2 kv_heads) * head_size + 3 * inner
    logits       float32 of one chunk, twice (with its gradient)

    A trained critic doubles the first three, a reference model adds w * P / T. With adapters of N numbers,
    optimizer and gradients are of N numbers, and the base's w * P / T are always there beside them.
    """
    size = float(shape.parameters)
    share, lora = size / trainers, workload.lora_rank
    trained = shape.adapters(lora, workload.lora_targets) / trainers if lora else share
    optimised = trained + (share if workload.critic else 0.0)
    own_copy = weight_bytes if weight_bytes < MASTER else 0.0
    embedding = shape.vocabulary * shape.hidden
    layer = (size - embedding) / shape.layers
    inside = 4 * shape.hidden + (2 * shape.heads + 2 * shape.kv_heads) * shape.head_size + 3 * shape.inner
    kept = shape.hidden * shape.layers + inside if workload.checkpointing else inside * shape.layers
    logits = min(4.0 * shape.vocabulary * workload.micro_batch, CHUNK_BYTES_CPU if cpu else CHUNK_BYTES)
    items = {
        "weights": optimised * own_copy + (share * weight_bytes if lora else 0.0),
        "optimizer": optimised * (MASTER + MOMENTS),
        "gradients": optimised * GRADIENT,
        "gathered layers": weight_bytes * (2 * layer + embedding) if trainers > 1 else 0.0,
        "activations": weight_bytes * workload.micro_batch * kept,
        "logits": 2.0 * logits,
        "reference": share * weight_bytes if workload.reference else 0.0,
    }
    return Held({name: amount for name, amount in items.items() if amount})


def running_context(workload: Workload, lengths: Lengths) -> float:
    """Mean tokens of a running answer and its prompt, over time: prompt + E[n^2] / (2 E[n]).

    Long answers run longer, so they are met more often, and on average half done.
    """
    return workload.prompt + lengths.mean_square / (2.0 * lengths.mean)


def engine_slots(
    shape: ModelShape, device: Device, assumed: Assumptions, devices: int, context: float, weight_bytes: float
) -> int:
    """Answers that the cache of an engine of so many devices holds at once; 0 where the weights do not fit.

    (share * memory * devices - w * P) / (w * 2 * layers * kv_heads * head_size * context)
    """
    free = device.memory * devices * assumed.engine_memory - shape.parameters * weight_bytes
    return max(0, int(free / (shape.cached_numbers * weight_bytes * context)))


def engine_memory(shape: ModelShape, running: int, devices: int, context: float, weight_bytes: float) -> Held:
    """What one device of an engine holds while ``running`` answers of mean context run."""
    cache = running * context * shape.cached_numbers * weight_bytes / devices
    return Held({"weights": shape.parameters * weight_bytes / devices, "cache": cache})


def fits(
    shape: ModelShape, device: Device, assumed: Assumptions, workload: Workload, split: Split, w: float
) -> bool:
    """Whether a trainer's part fits into its share of a device. w: bytes of a weight."""
    held = trainer_memory(shape, workload, split.trainers, w, cpu=bool(device.cores))
    return held.total <= device.memory * assumed.trainer_memory
