"""Weights from the trainer's process into engines' processes: one broadcast in buckets, never through disk.

    sender   [word, n] bucket [word, n] bucket ... [END, 0]
    each receiver takes the same; a bucket is a run of tensors of one dtype, laid end to end

Both ends cut the same descriptions with the same function, so only tensors and two integers a bucket
travel. The word before each bucket is where a source that fails says so: receivers then raise its
sentence at once instead of waiting for the group's time-out.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from trimtab.distributed.meeting import Link, Meeting, free_port
from trimtab.errors import RunError
from trimtab.types import WeightSource

__all__ = ["Described", "Meeting", "Receiver", "Sender", "Traffic", "described", "free_port"]

BUCKET, FAULT, END = 1, 2, 3
LONGEST_SENTENCE = 4096

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor that is to come: its name in the Hugging Face module, "float32", and its full shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def kind(self) -> torch.dtype:
        """Its torch dtype. Raises: RunError for a name that torch does not know."""
        kind = getattr(torch, self.dtype, None)
        if not isinstance(kind, torch.dtype):
            raise RunError(f"weights: {self.name!r} is described with the unknown dtype {self.dtype!r}")
        return kind

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * self.kind.itemsize


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one end has carried: complete pushes, bytes of tensors (once, however many receive), seconds."""

    pushes: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.pushes + other.pushes, self.bytes + other.bytes, self.seconds + other.seconds)


def described(source: WeightSource) -> list[Described]:
    """What iterating ``source`` will yield, in its order.

    A source that knows without touching its tensors says so in an attribute ``described``, or as names,
    dtypes and shapes by a method ``outline``; else it is iterated once.
    """
    known = getattr(source, "described", None)
    if known is None and (outline := getattr(source, "outline", None)) is not None:
        known = [Described(name, str(kind).removeprefix("torch."), shape) for name, kind, shape in outline()]
    return list(known) if known is not None else [_describe(name, tensor) for name, tensor in source]


def _describe(name: str, tensor: Tensor) -> Described:
    return Described(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def cut(items: Iterable[tuple[Described, Payload]], limit: int) -> Iterator[list[tuple[Described, Payload]]]:
    """Runs of one dtype and at most ``limit`` bytes, in order; a larger tensor is a run of its own."""
    run: list[tuple[Described, Payload]] = []
    size = 0
    for item in items:
        one = item[0]
        if run and (one.dtype != run[0][0].dtype or size + one.bytes > limit):
            yield run
            run, size = [], 0
        run.append(item)
        size += one.bytes
    if run:
        yield run


class Sender:
    """Rank 0 of a meeting. Blocking: asynchronous code calls it in a thread."""

    def __init__(self, meeting: Meeting) -> None:
        """Open the meeting and wait for every receiver. Raises: RunError naming those who do not come."""
        self.meeting = meeting
        self._link = Link(meeting, 0)
        self.last, self.total = Traffic(), Traffic()

    def send(self, source: WeightSource) -> Traffic:
        """Broadcast every tensor of ``source``, and return what that took.

        The source is iterated to its end even when the receivers are gone, because the other ranks of a
        sharded trainer gather along with it. Raises: what the source raised, after the receivers were
        told; RunError when the group broke, after which this sender is closed.
        """
        began, carried = time.perf_counter(), 0
        tensors = iter(source)
        pairs = ((_describe(name, tensor), tensor) for name, tensor in tensors)
        try:
            for run in _source_faults(cut(pairs, self.meeting.bucket_bytes)):
                carried += self._send_bucket(run)
            self._word(END, 0)
        except SourceError as fault:
            self._tell(fault.cause)
            raise fault.cause from None
        except RunError:
            self.close()
            for _ in tensors:
                pass
            raise
        self.last = Traffic(1, carried, time.perf_counter() - began)
        self.total += self.last
        return self.last

    def _send_bucket(self, run: list[tuple[Described, Tensor]]) -> int:
        size = sum(one.bytes for one, _ in run)
        self._word(BUCKET, size)
        if size:
            pieces = [tensor.detach().reshape(-1).to(self._link.device) for _, tensor in run]
            self._link.broadcast(pieces[0] if len(pieces) == 1 else torch.cat(pieces))
        return size

    def _word(self, word: int, number: int) -> None:
        self._link.broadcast(torch.tensor([word, number], dtype=torch.int64, device=self._link.device))

    def _tell(self, fault: BaseException) -> None:
        sentence = f"{type(fault).__name__}: {fault}".encode()[:LONGEST_SENTENCE]
        try:
            self._word(FAULT, len(sentence))
            letters = torch.frombuffer(bytearray(sentence), dtype=torch.uint8)
            self._link.broadcast(letters.to(self._link.device))
        except RunError:
            self.close()

    def close(self) -> None:
        """Leave the group. Receivers that still wait raise at once."""
        self._link.close()


class Receiver:
    """One of ranks 1 to world - 1 of a meeting. Blocking, as the sender is."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        """Come to the meeting. Raises: RunError when there is no sender, or another receiver is missing."""
        if rank < 1:
            raise ValueError(f"a receiver has rank 1 or higher, got {rank}; rank 0 sends")
        self.meeting = meeting
        self._link = Link(meeting, rank)
        self.last, self.total = Traffic(), Traffic()

    def receive(self, described: Iterable[Described]) -> Generator[tuple[str, Tensor], None, None]:
        """The tensors of one push, in the order described. Each bucket is memory of its own.

        A consumer that stops in the middle closes this end, so that the sender does not wait for it.
        Raises: RunError with the sender's sentence when its source failed (the group stays usable),
        or when the group broke or the two ends describe different weights (it is closed).
        """
        began, carried = time.perf_counter(), 0
        whole = False
        try:
            for run in cut(((one, None) for one in described), self.meeting.bucket_bytes):
                parts = [one for one, _ in run]
                carried += sum(one.bytes for one in parts)
                yield from self._take_bucket(parts)
            self._expect(END, 0)
            whole = True
        except SenderError as fault:
            whole = True
            raise RunError(f"the sender could not give its weights: {fault}") from None
        except GeneratorExit:
            self._link.complain("the engine stopped in the middle of a push")
            raise
        finally:
            if not whole:
                self.close()
        self.last = Traffic(1, carried, time.perf_counter() - began)
        self.total += self.last

    def _take_bucket(self, parts: list[Described]) -> Iterator[tuple[str, Tensor]]:
        size = sum(one.bytes for one in parts)
        self._expect(BUCKET, size)
        flat = torch.empty(sum(one.count for one in parts), dtype=parts[0].kind, device=self._link.device)
        if size:
            self._link.broadcast(flat)
        for one, piece in zip(parts, flat.split([one.count for one in parts]), strict=True):
            yield one.name, piece.view(one.shape)

    def _expect(self, word: int, number: int) -> None:
        told = torch.empty(2, dtype=torch.int64, device=self._link.device)
        self._link.broadcast(told)
        came, size = told.tolist()
        if came == FAULT:
            letters = torch.empty(size, dtype=torch.uint8, device=self._link.device)
            self._link.broadcast(letters)
            raise SenderError(bytes(letters.tolist()).decode(errors="replace"))
        if (came, size) != (word, number):
            sentence = (
                f"the sender came with {_words(came, size)} where {_words(word, number)} was described; "
                "trainer and engine must hold the same model"
            )
            self._link.complain(sentence)
            raise RunError(sentence)

    def close(self) -> None:
        """Leave the group; a sender that still waits raises at once."""
        self._link.close()


class SourceError(Exception):
    """Carries what a source raised past the faults of the group, which are RunErrors too."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SenderError(Exception):
    """The sentence of a source that failed in the sender."""


def _source_faults(runs: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            run = next(runs)
        except StopIteration:
            return
        except Exception as error:
            raise SourceError(error) from error
        yield run


def _words(word: int, number: int) -> str:
    return f"a bucket of {number} bytes" if word == BUCKET else "the end of the weights"
