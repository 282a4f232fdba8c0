"""Weights broadcast between threads and processes: equal to the bit, and no fault leaves anybody waiting."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.distributed.transfer import Described, Meeting, Receiver, Sender, cut, described, free_port
from trimtab.errors import RunError

SMALL = 4096


def mixed() -> list[tuple[str, Tensor]]:
    """Several dtypes, a scalar, an empty tensor, a strided one, and one larger than a bucket."""
    own = torch.Generator().manual_seed(3)  # threads share the global one
    return [
        ("a.weight", torch.randn(7, 5, generator=own)),
        ("a.scale", torch.tensor(2.5)),
        ("a.empty", torch.empty(0, 3)),
        ("b.large", torch.randn(60, 70, generator=own)),
        ("b.strided", torch.randn(9, 4, generator=own).t()),
        ("c.half", torch.randn(11, 3, generator=own).to(torch.bfloat16)),
        ("c.more", torch.randn(50, generator=own).to(torch.bfloat16)),
        ("d.ids", torch.arange(600)),
        ("e.last", torch.randn(800, generator=own)),
        ("f.last", torch.randn(800, generator=own)),
    ]


def meeting(world: int = 2, timeout: float = 20.0, bucket: int = SMALL) -> Meeting:
    return Meeting("127.0.0.1", free_port(), world, timeout, bucket_bytes=bucket)


def together(*ends: Callable[[], Any]) -> list[Future[Any]]:
    """Run each in a thread of its own to its end."""
    with ThreadPoolExecutor(len(ends)) as pool:
        return [pool.submit(end) for end in ends]


class Spoiled:
    """A source that yields ``count`` tensors and then fails."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        yield from mixed()[: self.count]
        raise ValueError("layer 3 could not be gathered")


def test_descriptions_say_what_will_come():
    told = described(mixed())
    assert told[0] == Described("a.weight", "float32", (7, 5))
    assert told[5] == Described("c.half", "bfloat16", (11, 3))
    assert [one.bytes for one in told[:3]] == [140, 4, 0]
    assert described(type("Known", (), {"described": told[:2]})()) == told[:2]
    with pytest.raises(RunError, match="float33"):
        _ = Described("x", "float33", (1,)).bytes


def test_a_bucket_holds_one_dtype_and_its_bytes():
    runs = [[one for one, _ in run] for run in cut([(one, None) for one in described(mixed())], SMALL)]
    assert [one for run in runs for one in run] == described(mixed())
    assert all(len({one.dtype for one in run}) == 1 for run in runs)
    assert all(len(run) == 1 or sum(one.bytes for one in run) <= SMALL for run in runs)
    assert [one.name for one in next(run for run in runs if run[0].name == "b.large")] == ["b.large"]
    assert len(runs) == 7


@pytest.mark.parametrize("bucket", [SMALL, 1 << 20])
def test_every_receiver_gets_every_value(bucket):
    place = meeting(world=3, bucket=bucket)

    def send() -> Sender:
        sender = Sender(place)
        for _ in range(2):
            sender.send(mixed())
        return sender

    def receive(rank: int) -> tuple[Receiver, list[list[tuple[str, Tensor]]]]:
        receiver = Receiver(place, rank)
        pushes = [list(receiver.receive(described(mixed()))) for _ in range(2)]
        return receiver, pushes

    sent, *received = together(send, lambda: receive(1), lambda: receive(2))
    size = sum(one.bytes for one in described(mixed()))
    assert (sent.result().total.pushes, sent.result().total.bytes) == (2, 2 * size)
    assert sent.result().last.seconds > 0
    for future in received:
        receiver, pushes = future.result()
        assert (receiver.total.pushes, receiver.total.bytes) == (2, 2 * size)
        for push in pushes:
            for (name, tensor), (wanted, value) in zip(push, mixed(), strict=True):
                assert (name, tensor.dtype, tensor.shape) == (wanted, value.dtype, value.shape)
                assert torch.equal(tensor, value)


@pytest.mark.parametrize("count", [0, 4, 10])
def test_a_failing_source_is_told_at_once_and_the_group_lives_on(count):
    place = meeting()

    def send() -> None:
        sender = Sender(place)
        with pytest.raises(ValueError, match="layer 3"):
            sender.send(Spoiled(count))
        sender.send(mixed())

    def receive() -> list[str]:
        receiver = Receiver(place, 1)
        with pytest.raises(RunError, match="ValueError: layer 3 could not be gathered"):
            list(receiver.receive(described(mixed())))
        return [name for name, _ in receiver.receive(described(mixed()))]

    began = time.monotonic()
    sent, received = together(send, receive)
    sent.result()
    assert received.result() == [name for name, _ in mixed()]
    assert time.monotonic() - began < place.timeout / 2


def test_a_receiver_that_never_comes_is_named_to_everybody():
    place = meeting(world=3, timeout=1.0)
    sent, received = together(lambda: Sender(place), lambda: Receiver(place, 1))
    for future in (sent, received):
        with pytest.raises(RunError, match=r"receiver 2 of 2 did not come .* within 1 s"):
            future.result()


def test_a_sender_that_never_comes_is_missed():
    with pytest.raises(RunError, match="nobody opened the weight transfer"):
        Receiver(meeting(timeout=0.5), 1)


def test_a_receiver_that_stops_ends_the_push_and_the_source_is_drained():
    place, drained = meeting(bucket=1 << 20), []

    def source() -> Iterator[tuple[str, Tensor]]:
        for i in range(40):
            yield f"w{i}", torch.ones(1 << 18)
        drained.append(True)

    def send() -> None:
        sender = Sender(place)
        with pytest.raises(RunError, match="receiver 1: the engine stopped in the middle of a push"):
            sender.send(source())
        with pytest.raises(RunError, match="closed"):
            sender.send(mixed())

    def receive() -> None:
        receiver = Receiver(place, 1)
        told = [Described(f"w{i}", "float32", (1 << 18,)) for i in range(40)]
        stream = receiver.receive(told)
        next(stream)
        stream.close()

    began = time.monotonic()
    for future in together(send, receive):
        future.result()
    assert drained == [True]
    assert time.monotonic() - began < place.timeout / 2


def test_different_descriptions_are_noticed():
    place = meeting()

    def send() -> None:
        sender = Sender(place)
        pushes = itertools.repeat(mixed(), 3)  # a group notices only when it next waits for the other end
        with pytest.raises(RunError, match="receiver 1: the sender came with a bucket of"):
            list(map(sender.send, pushes))

    def receive() -> None:
        with pytest.raises(RunError, match="came with a bucket of .* where .* trainer and engine"):
            list(Receiver(place, 1).receive(described(mixed())[:-1]))

    for future in together(send, receive):
        future.result()


def test_the_meeting_listens_on_its_own_address_only():
    place = meeting(timeout=3.0)
    outcome: list[Exception] = []

    def open_it() -> None:
        try:
            Sender(place)
        except RunError as error:
            outcome.append(error)

    thread = threading.Thread(target=open_it)
    thread.start()
    time.sleep(0.5)
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split()[1:4] for line in table.readlines()[1:]]
    listening = [local for local, _, state in rows if state == "0A" and local.endswith(f":{place.port:04X}")]
    thread.join()
    assert listening == [f"0100007F:{place.port:04X}"]
    assert "receiver 1 of 1 did not come" in str(outcome[0])


def test_a_port_in_use_is_said():
    place = meeting(timeout=1.0)
    with (
        socket.create_server(("127.0.0.1", place.port)),
        pytest.raises(RunError, match="cannot listen on"),
    ):
        Sender(place)
