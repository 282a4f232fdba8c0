"""Where the processes of a weight transfer find each other, and the group they then form.

Rank 0 opens a key-value store at a stated address, the others come to it. Everybody is called by name
before the group is built, so that whoever did not come is named instead of waited for without end.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from trimtab.errors import RunError

c10d: Any = dist
"""torch.distributed with the names that it has but does not declare as exported."""
GO = b"go"
STEP = 0.01
"""Seconds between two looks at the store while somebody is waited for (its own wait complains aloud)."""
GRACE = 2.0
"""Seconds that a receiver waits longer than the sender, so that it hears who is missing."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """An appointment of ``world`` processes: rank 0 sends, ranks 1 to world - 1 receive.

    host, port: where rank 0 listens; a loopback address unless the receivers are on other machines.
    timeout: seconds for everybody to come, and for each single operation afterwards.
    backend: "gloo" carries tensors through the CPU; "nccl" from GPU to GPU, each rank on one of its own.
    bucket_bytes: bytes that travel at once, and that each end holds beside the weights.
    """

    host: str
    port: int
    world: int
    timeout: float = 60.0
    backend: Literal["gloo", "nccl"] = "gloo"
    bucket_bytes: int = 64 << 20

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host`` that nobody listens on at this moment."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class Link:
    """One process's end of a group: broadcasts from rank 0, and what rank 0 would like to say in words."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        """Come to the meeting; returns when everybody is there.

        Raises: RunError naming the ranks that did not come, or when rank 0 cannot be reached.
        """
        if not 0 <= rank < meeting.world:
            raise ValueError(f"rank {rank} in a meeting of {meeting.world}")
        self.meeting, self.rank = meeting, rank
        self.device = torch.device("cpu")
        if meeting.backend == "nccl":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._store: Any = _open_store(meeting) if rank == 0 else _reach_store(meeting)
        if rank == 0:
            self._call_the_roll()
        else:
            self._wait_to_be_called()
        try:
            self._group: Any = _group(meeting, rank, self._store)
        except RuntimeError as error:
            raise RunError(f"rank {rank} could not join the transfer group at {meeting}: {error}") from error

    def _call_the_roll(self) -> None:
        """Wait for every receiver; tell those who came whether all did."""
        missing = list(range(1, self.meeting.world))
        end = time.monotonic() + self.meeting.timeout
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not self._store.check([f"here/{rank}"])]
            if missing:
                time.sleep(STEP)
        if not missing:
            self._store.set("roll", GO)
            return
        names = ", ".join(map(str, missing))
        sentence = (
            f"receiver {names} of {self.meeting.world - 1} did not come to the weight transfer at "
            f"{self.meeting} within {self.meeting.timeout:g} s; its process is dead, stuck, or cannot "
            "reach that address"
        )
        self._store.set("roll", sentence.encode())
        raise RunError(sentence)

    def _wait_to_be_called(self) -> None:
        try:
            self._store.set(f"here/{self.rank}", b"1")
            end = time.monotonic() + self.meeting.timeout + GRACE
            while not self._store.check(["roll"]) and time.monotonic() < end:
                time.sleep(STEP)
            answer = self._store.get("roll")
        except RuntimeError as error:
            raise RunError(
                f"receiver {self.rank} came to the weight transfer at {self.meeting} but the sender did not "
                f"begin within {self.meeting.timeout:g} s: {_first_line(error)}"
            ) from error
        if answer != GO:
            raise RunError(answer.decode())

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give (rank 0) or take (the others) one tensor. Raises: RunError when the group is broken."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        try:
            self._group.broadcast([tensor], options).wait()
            if tensor.is_cuda:
                torch.cuda.current_stream(tensor.device).synchronize()
        except (RuntimeError, AttributeError) as error:
            raise RunError(f"the weight transfer at {self.meeting} broke: {self._why(error)}") from error

    def complain(self, sentence: str) -> None:
        """Leave word of a fault of this end where the others look when the group breaks."""
        with contextlib.suppress(RuntimeError, AttributeError):
            self._store.set(f"fault/{self.rank}", sentence.encode())

    def _why(self, error: Exception) -> str:
        if self._group is None:
            return "this end was closed"
        told = []
        with contextlib.suppress(RuntimeError):
            for rank in range(self.meeting.world):
                if rank != self.rank and self._store.check([f"fault/{rank}"]):
                    who = f"receiver {rank}" if rank else "the sender"
                    told.append(f"{who}: {self._store.get(f'fault/{rank}').decode()}")
        return "; ".join(told) or _first_line(error)

    def close(self) -> None:
        """Leave the group; whoever still waits for this end learns it at once."""
        group, self._group, self._store = self._group, None, None
        if group is not None:
            with contextlib.suppress(RuntimeError):
                group.abort() if self.meeting.backend == "nccl" else group.shutdown()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _open_store(meeting: Meeting) -> Any:
    """A store that listens on the stated address only; left alone, torch would listen on all of them."""
    listener = socket.socket(_family(meeting.host), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((meeting.host, meeting.port))
        listener.listen(meeting.world + 8)
    except OSError as error:
        listener.close()
        raise RunError(f"the weight transfer cannot listen on {meeting}: {error}") from error
    return c10d.TCPStore(
        meeting.host,
        meeting.port,
        is_master=True,
        timeout=timedelta(seconds=meeting.timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def _reach_store(meeting: Meeting) -> Any:
    """The sender's store, as soon as it is open."""
    end = time.monotonic() + meeting.timeout
    while True:
        try:
            socket.create_connection((meeting.host, meeting.port), timeout=1.0).close()
            break
        except OSError as error:
            if time.monotonic() > end:
                raise RunError(
                    f"nobody opened the weight transfer at {meeting} within {meeting.timeout:g} s ({error}); "
                    "the sender is dead or that address cannot be reached from here"
                ) from error
            time.sleep(5 * STEP)
    left = timedelta(seconds=max(1.0, end - time.monotonic()))
    try:
        return c10d.TCPStore(
            meeting.host, meeting.port, is_master=False, timeout=left, wait_for_workers=False
        )
    except RuntimeError as error:
        raise RunError(f"no weight transfer answers at {meeting}: {_first_line(error)}") from error


def _group(meeting: Meeting, rank: int, store: Any) -> Any:
    """A group apart from torch's default one, which trainer ranks and vLLM's workers have for themselves."""
    prefixed = c10d.PrefixStore("weights", store)
    timeout = timedelta(seconds=meeting.timeout)
    if meeting.backend == "nccl":
        kind: Any = getattr(c10d, "ProcessGroupNCCL", None)
        if kind is None:
            raise RunError("this build of torch has no NCCL; transfer weights with backend = 'gloo'")
        options = kind.Options()
        options._timeout = timeout
        return kind(prefixed, rank, meeting.world, options)
    options = c10d.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [c10d.ProcessGroupGloo.create_device(hostname=_own_address(meeting))]
    return c10d.ProcessGroupGloo(prefixed, rank, meeting.world, options)


def _own_address(meeting: Meeting) -> str:
    """The address by which this machine reaches the meeting, so that on one host all stays on loopback."""
    with socket.socket(_family(meeting.host), socket.SOCK_DGRAM) as probe:
        probe.connect((meeting.host, meeting.port))
        return str(probe.getsockname()[0])


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
