"""Weights and shards over NCCL between GPUs: each process has one of its own, as NCCL wants it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.contract.test_sharded_gpu import on_gpu
from tests.sharded_cases import Case, trained
from trimtab.distributed.transfer import Meeting, Receiver, Sender, described, free_port
from trimtab.errors import RunError
from trimtab.models import LoadedModel
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.sharded import ShardedTrainer
from trimtab.trainer.sharded_group import join, open_store, reach_store

pytestmark = pytest.mark.gpu

PATIENCE = 120.0
PROCESSES = multiprocessing.get_context("spawn")
PUSHES = 3


def several(test: Callable[..., None]) -> Callable[..., None]:
    """For tests of two processes with a GPU each."""
    there = torch.cuda.device_count()
    return pytest.mark.skipif(there < 2, reason=f"needs two CUDA devices, and there are {there}")(test)


def weights(version: int, device: str) -> list[tuple[str, torch.Tensor]]:
    """Two dtypes, a scalar, an empty tensor, and one larger than a bucket; others in each version."""
    random = torch.Generator().manual_seed(version)
    shapes = {"a.weight": (7, 5), "a.scale": (), "a.empty": (0, 3), "b.large": (60, 70)}
    made = [(name, torch.randn(shape, generator=random)) for name, shape in shapes.items()]
    half = [("c.half", torch.randn(11, 3, generator=random).to(torch.bfloat16))]
    return [(name, tensor.to(device)) for name, tensor in (*made, *half)]


def meeting(world: int) -> Meeting:
    return Meeting("127.0.0.1", free_port(), world, PATIENCE, "nccl", bucket_bytes=4096)


def test_a_group_of_one_opens_sends_and_ends():
    """What one GPU can show: the group comes up, buckets go out from its memory, and it is left at once."""
    sender = Sender(meeting(1))
    for version in range(PUSHES):
        sent = sender.send(weights(version, "cuda"))
        assert sent.bytes == sum(one.bytes for one in described(weights(version, "cuda")))
    assert sender.total.pushes == PUSHES
    sender.close()


@several
def test_weights_arrive_from_gpu_to_gpu_to_the_bit():
    """Three pushes, each other weights, and one whose source fails: the receiver is told its sentence."""
    sending, told = meeting(2), PROCESSES.Queue()
    process = PROCESSES.Process(target=reported, args=(told, receive, sending), daemon=True)
    process.start()
    torch.cuda.set_device(0)
    sender = Sender(sending)
    for version in range(PUSHES):
        sender.send(weights(version, "cuda:0"))
    with pytest.raises(ValueError, match="not gathered"):
        sender.send(failing())
    for version, found in enumerate(answer(told)):
        for (name, tensor), (own, expected) in zip(found, weights(version, "cpu"), strict=True):
            assert name == own
            assert torch.equal(tensor, expected)
    sender.close()
    process.join(PATIENCE)
    assert process.exitcode == 0


def failing() -> Any:
    yield from weights(0, "cuda:0")[:2]
    raise ValueError("not gathered")


def receive(sending: Meeting) -> list[list[tuple[str, torch.Tensor]]]:
    """In a process of its own, with the second GPU."""
    torch.cuda.set_device(1)
    receiver, found = Receiver(sending, 1), []
    for version in range(PUSHES):
        came = list(receiver.receive(described(weights(version, "cpu"))))
        assert all(tensor.device.index == 1 for _, tensor in came)
        found.append([(name, tensor.cpu()) for name, tensor in came])
    with pytest.raises(RunError, match="not gathered"):
        list(receiver.receive(described(weights(0, "cpu"))))
    receiver.close()
    return found


@several
def test_ten_updates_of_two_gpus_are_those_of_the_trainer_of_one_process():
    told, port = PROCESSES.Queue(), free_port()
    ranks = [
        PROCESSES.Process(target=reported, args=(told, train, rank, port), daemon=True) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    case = Case()
    alone = trained(case, case.built(lambda model, **settings: LocalTrainer(on_gpu(model), **settings)))
    for _ in ranks:
        found = answer(told)
        difference = max(
            float((tensor.cpu() - found[name]).abs().max())
            for name, tensor in alone.weights["policy"].items()
        )
        assert difference <= 1e-5
    for process in ranks:
        process.join(PATIENCE)
        assert process.exitcode == 0


def train(rank: int, port: int) -> dict[str, torch.Tensor]:
    """One rank: ten updates, and the weights that it publishes."""
    torch.cuda.set_device(rank)
    meet = reach_store if rank else open_store
    store = meet("127.0.0.1", port, timeout=PATIENCE)
    group = join(rank, 2, store, timeout=PATIENCE, device="cuda")
    case = Case()

    def sharded(model: LoadedModel, **settings: Any) -> ShardedTrainer:
        return ShardedTrainer(model, group=group, **settings)

    trainer = case.built(sharded)
    trained(case, trainer)
    source, _ = asyncio.run(trainer.publish())
    found = {name: tensor.cpu() for name, tensor in source}
    group.close()
    return found


def reported(told: Any, work: Callable[..., Any], *args: Any) -> None:
    """In a process: what the work gives, or its traceback."""
    try:
        told.put((True, pickle.dumps(work(*args))))  # as bytes, which outlive this process
    except BaseException:
        told.put((False, traceback.format_exc()))
        raise


def answer(told: Any) -> Any:
    done, found = told.get(timeout=PATIENCE)
    assert done, found
    return pickle.loads(found)
