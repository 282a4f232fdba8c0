"""What each stage costs in seconds, reckoned from a model's shape and a device's limits."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Protocol

from trimtab.errors import SettingError, nearest
from trimtab.planning.decoding import DecodeCost
from trimtab.planning.figures import Figure, Origin
from trimtab.planning.hardware import Device
from trimtab.planning.shape import ModelShape
from trimtab.planning.workload import Split, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Seconds of one pass over T tokens in sequences of lengths n_s, on the busiest trainer:

    fixed + max(per_token * T + per_square * sum n_s^2,  per_micro_batch * ceil(T / micro_batch))

    The second side is what travels between trainers for each micro-batch; it overlaps the computing.
    """

    fixed: float = 0.0
    per_token: float = 0.0
    per_square: float = 0.0
    per_micro_batch: float = 0.0
    micro_batch: int = 1 << 30

    def seconds(self, tokens: float, squares: float = 0.0) -> float:
        """Of one pass; 0 where there is no token."""
        if not tokens:
            return 0.0
        travels = self.per_micro_batch * math.ceil(tokens / self.micro_batch)
        return self.fixed + max(self.per_token * tokens + self.per_square * squares, travels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Every cost of a split.

    update: of one optimizer step. annotate: of one forward pass before it. sync: seconds from the trainer's
    weights to all engines' weights. grade: seconds an answer, by ``graders`` at once. rest: what is neither
    (metrics, record), ``per_token`` of answers. round: seconds that a round of sampling adds (messages).
    """

    decode: DecodeCost
    update: StageCost
    annotate: StageCost = StageCost()
    sync: float = 0.0
    grade: float = 0.0
    graders: int = 1
    rest: StageCost = StageCost()
    round: float = 0.0


class CostSource(Protocol):
    """Knows the costs of any split, and says where its numbers come from."""

    @property
    def measured(self) -> bool: ...

    def costs(self, split: Split) -> Costs: ...

    def figures(self) -> list[Figure]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Numbers that nobody measured here. Each can be set: ``--assume NAME=VALUE``.

    update_compute, sample_compute, sample_bandwidth, link_share: share of the data sheet's limit that is
        reached. tick: seconds that an engine adds to every tick (scheduling, launching).
    all_reduce: seconds of latency of one all-reduce of a tensor-parallel engine; two a layer and tick.
    update_overhead, sync_overhead, rest: seconds an update, a delivery of weights, a step.
    grade: seconds an answer; graders: answers graded at once.
    engine_memory, trainer_memory: share of a device's memory that may be planned with.
    """

    update_compute: float = 0.4
    sample_compute: float = 0.5
    sample_bandwidth: float = 0.6
    link_share: float = 0.7
    tick: float = 0.004
    all_reduce: float = 20e-6
    update_overhead: float = 0.05
    sync_overhead: float = 0.2
    rest: float = 0.2
    grade: float = 0.001
    graders: float = 8.0
    engine_memory: float = 0.85
    trainer_memory: float = 0.9

    def __post_init__(self) -> None:
        for name in dataclasses.asdict(self):
            value = getattr(self, name)
            share = name.endswith(("_compute", "_bandwidth", "_share", "_memory"))
            if not (0.0 <= value < math.inf) or (share and not 0.0 < value <= 1.0):
                raise SettingError(
                    f"--assume {name} must be {'in (0, 1]' if share else '>= 0 and finite'}, got {value:g}"
                )
        if self.graders < 1:
            raise SettingError(f"--assume graders must be >= 1, got {self.graders:g}")

    def figures(self) -> list[Figure]:
        """All of them, as such."""
        seconds = ("tick", "all_reduce", "update_overhead", "sync_overhead", "rest", "grade")
        return [
            Figure(name, value, "s" if name in seconds else "", Origin.ASSUMED, "--assume changes it")
            for name, value in dataclasses.asdict(self).items()
        ]


def assumptions_with(tokens: list[str]) -> Assumptions:
    """The assumptions with ``name=value`` laid over them. Raises SettingError for an unknown name."""
    known = [field.name for field in dataclasses.fields(Assumptions)]
    values: dict[str, float] = {}
    for token in tokens:
        name, equals, text = token.partition("=")
        if name not in known:
            raise SettingError(f"--assume: nothing is called {name!r}{nearest(name, known)}")
        try:
            values[name] = float(text)
        except ValueError:
            raise SettingError(f"--assume is written NAME=NUMBER, got {token!r}") from None
        if not equals:
            raise SettingError(f"--assume is written NAME=NUMBER, got {token!r}")
    return Assumptions(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetCosts:
    """Costs by formula. weight_bytes: of a weight in an engine and on the way to it.

    per token and device: forward 2 * active FLOP, backward twice that, one more forward with checkpointing.
    """

    shape: ModelShape
    device: Device
    workload: Workload
    assumed: Assumptions = Assumptions()
    weight_bytes: float = 2.0
    measured: bool = False

    def costs(self, split: Split) -> Costs:
        """See ``CostSource``."""
        shape, device, assumed = self.shape, self.device, self.assumed
        compute = device.flops * assumed.update_compute
        forward, pair = shape.flops / compute, shape.flops_per_pair / 2.0 / compute
        times = 4.0 if self.workload.checkpointing else 3.0
        models = 2.0 if self.workload.critic else 1.0
        gathers = self._gather_seconds(split.trainers)
        lora = self.workload.lora_rank
        trained = shape.adapters(lora, self.workload.lora_targets) if lora else shape.parameters
        trained += shape.parameters if self.workload.critic else 0
        state = trained * 30.0 / split.trainers / (device.bandwidth * assumed.sample_bandwidth)
        return Costs(
            decode=self.decode(split.tensor_parallel),
            update=StageCost(
                fixed=assumed.update_overhead + state,
                per_token=models * times * forward,
                per_square=models * times * pair,
                per_micro_batch=models * 3.0 * gathers,
                micro_batch=self.workload.micro_batch,
            ),
            annotate=StageCost(
                per_token=forward,
                per_square=pair,
                per_micro_batch=gathers,
                micro_batch=self.workload.micro_batch,
            ),
            sync=sync_seconds(shape, device, assumed, split, self.weight_bytes),
            grade=assumed.grade,
            graders=int(assumed.graders),
            rest=StageCost(fixed=assumed.rest),
        )

    def decode(self, devices: int) -> DecodeCost:
        """Of an engine of so many devices."""
        shape, assumed = self.shape, self.assumed
        compute = self.device.flops * devices * assumed.sample_compute
        bandwidth = self.device.bandwidth * devices * assumed.sample_bandwidth
        weights = shape.parameters * self.weight_bytes / bandwidth
        latency = 2 * shape.layers * assumed.all_reduce if devices > 1 else 0.0
        return DecodeCost(
            fixed=assumed.tick + latency,
            per_row=shape.flops / compute,
            per_pair=shape.flops_per_pair / compute,
            dense_read=weights * (1.0 - shape.expert_share),
            expert_read=weights * shape.expert_share,
            routed=shape.routed,
            per_context=shape.cached_numbers * self.weight_bytes / bandwidth,
            prefill=(shape.flops + shape.flops_per_pair * self.workload.prompt / 2.0) / compute,
        )

    def figures(self) -> list[Figure]:
        """Limits and assumptions."""
        return [*self.device.figures(), *self.assumed.figures()]

    def _gather_seconds(self, trainers: int) -> float:
        """Seconds in which a trainer receives all weights of the others once."""
        if trainers == 1:
            return 0.0
        speed = self.device.link if trainers <= self.device.per_node else self.device.network
        others = (trainers - 1) / trainers
        return self.shape.parameters * self.weight_bytes * others / (speed * self.assumed.link_share)


def sync_seconds(
    shape: ModelShape, device: Device, assumed: Assumptions, split: Split, weight_bytes: float
) -> float:
    """Seconds to gather the weights on one trainer and broadcast them, one after the other.

    overhead + bytes * (T - 1) / T / speed + bytes / speed; nothing travels inside one process.
    """
    if not split.engines:
        return 0.0
    size = shape.parameters * weight_bytes
    inside = split.devices <= device.per_node
    speed = (device.link if inside else device.network) * assumed.link_share
    gather = device.link if split.trainers <= device.per_node else device.network
    others = (split.trainers - 1) / split.trainers
    return assumed.sync_overhead + size * others / (gather * assumed.link_share) + size / speed
