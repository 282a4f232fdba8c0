"""What runs in each rank of a sharded trainer under test: functions that the test's process asks for.

Every function takes the rank's ``Place`` first and is called in all ranks with the same arguments.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import os
import pickle
import traceback
from collections.abc import Coroutine, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.models import LoadedModel
from trimtab.trainer.sharded import ShardedTrainer
from trimtab.trainer.sharded_group import Group, join, open_store, reach_store


@dataclasses.dataclass
class Place:
    """A rank: its group, and the trainers that were built in it by number."""

    group: Group
    trainers: dict[int, ShardedTrainer]


def serve(rank: int, size: int, pipe: Connection, timeout: float) -> None:
    """The body of a rank's process: join, then do what comes through the pipe until it closes."""
    torch.set_num_threads(1)
    store = open_store(timeout=timeout) if rank == 0 else None
    if store is not None:
        pipe.send(store.port)
    port = pipe.recv()
    group = join(rank, size, store or reach_store("127.0.0.1", port, timeout=timeout), timeout=timeout)
    place = Place(group, {})
    pipe.send(os.getpid())
    while True:
        try:
            function, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, function(place, *args))
        except Exception as error:  # the test judges it
            error.add_note("".join(traceback.format_exception(error)))
            answer = (False, error)
        pipe.send_bytes(pickle.dumps(answer))


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that never waits comes to; also inside the loop of a test."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a trainer's method waited for something")


def build(
    place: Place, number: int, drop: list[int], model: bytes, settings: Mapping[str, Any]
) -> tuple[bool, str]:
    for old in drop:
        place.trainers.pop(old, None)
    loaded, reference = pickle.loads(model)
    trainer = ShardedTrainer(loaded, group=place.group, reference=reference, **settings)
    place.trainers[number] = trainer
    return trainer.old_from_update, trainer.describe()


def call(place: Place, number: int, name: str, *args: Any) -> Any:
    """An asynchronous method of the trainer."""
    return finished(getattr(place.trainers[number], name)(*args))


def publish(place: Place, number: int) -> tuple[list[tuple[str, Tensor]], int]:
    source, version = finished(place.trainers[number].publish())
    return [(name, tensor.clone()) for name, tensor in source], version


def state(place: Place, number: int) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Tensor]]:
    """The version, all weights by owner, and the optimizer's moments; whole."""
    trainer = place.trainers[number]
    weights = {owned.name: whole(owned.everything()) for owned in trainer.owners}
    return trainer.version, weights, whole(trainer.optimizer.moments())


def kept_gradients(place: Place, number: int, batch: Any, objective: Any) -> tuple[bool, dict[str, Tensor]]:
    """The gradients just before the optimizer step, caught where the step would use them."""
    trainer = place.trainers[number]
    caught: dict[str, Tensor] = {}

    def catch(*_: Any, **__: Any) -> None:
        for owned in trainer.owners:
            caught.update({f"{owned.name}/{n}": g.clone() for n, g in owned.gradients().items()})

    handle = trainer.optimizer.adamw.register_step_pre_hook(catch)
    report = finished(trainer.update(batch, objective))
    handle.remove()
    return report.applied, whole(caught)


def whole(shards: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with the rows of all ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, {name: tensor.detach() for name, tensor in shards.items()})
    return {
        name: torch.cat([one[name] for one in found]) if tensor.ndim else tensor.detach()
        for name, tensor in shards.items()
    }


def poison(place: Place, number: int, name: str, index: tuple[int, ...], value: float) -> None:
    """Set one number of the policy's weights."""
    trainer = place.trainers[number]
    policy = trainer.owners[0]
    start, stop = trainer.ranks.rows(policy.parameters[name].shape[0])
    if start <= index[0] < stop:
        with torch.no_grad():
            policy.masters[name][(index[0] - start, *index[1:])] = value
    policy.spread()


def freeze(place: Place, number: int) -> None:
    place.trainers[number].model.module.requires_grad_(False)


def to_training(place: Place, number: int) -> None:
    place.trainers[number].model.module.train()


def modes_of_layers(place: Place, number: int, batch: Any, objective: Any) -> tuple[list[bool], list[bool]]:
    """In which mode layers run in an update, and in which they are left."""
    trainer = place.trainers[number]
    layers = trainer.model.module.model.layers
    modes: list[bool] = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, _: modes.append(layer.training))
    finished(trainer.update(batch, objective))
    return modes, [layer.training or layer.gradient_checkpointing for layer in layers]


def draw(place: Place, count: int) -> Tensor:
    """Numbers of torch's generator in this rank."""
    return torch.rand(count)


def packed(model: LoadedModel, reference: LoadedModel | None) -> bytes:
    """Models as bytes, so that every rank has its own copy to cut."""
    return pickle.dumps((model, reference))


def divide_by_ranks(place: Place, number: int) -> None:
    """Have gradients averaged over ranks, as FSDP does by itself."""
    from trimtab.trainer.sharded_model import sharded

    for root in place.trainers[number].roots:
        for module in sharded(root):
            module.set_gradient_divide_factor(float(place.group.size))


def fail(place: Place, number: int, rank: int) -> None:
    """From now on this rank's reader runs out of memory."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    if place.group.rank == rank:
        place.trainers[number].reader.reader.backbone = broken
