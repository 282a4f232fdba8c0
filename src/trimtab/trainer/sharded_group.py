"""The process group of a sharded trainer: explicit time-outs, loopback where it is enough, named faults.

A rank that dies breaks its connections, so the others notice at once; a rank that hangs lets their operation
run into the group's time-out. Either way whoever is left writes one word into the ranks' common store, closes
its own connections so that nobody waits any longer, reads the words of the others for a moment, and raises a
RunError that names the ranks without a word, or those that wrote what went wrong with them.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trimtab.errors import RunError
from trimtab.trainer.sharded_sockets import break_sockets, open_sockets

c10d: Any = dist
"""torch.distributed with the names that it has but does not declare as exported."""

LOOPBACK = ("127.", "::1", "localhost")
WAITS = "waits"
"""The word of a rank that has only seen the group break."""
GRACE, LOOK, STEP = 10.0, 0.05, 0.5
"""Seconds: for the words of others after a fault; between looks at the store then, and when ranks meet."""


def open_store(host: str = "127.0.0.1", port: int = 0, *, timeout: float = 600.0) -> Any:
    """The ranks' common store, for rank 0 to keep; ``.port`` is where it listens, on ``host`` alone.

    Raises: RunError when that address is taken or not this machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise RunError(f"the trainer's ranks cannot meet at {host}:{port}: {error}") from error
    return c10d.TCPStore(
        host,
        listener.getsockname()[1],
        is_master=True,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def reach_store(host: str, port: int, *, timeout: float = 600.0) -> Any:
    """The store that rank 0 keeps. Raises: RunError when nobody answers there within ``timeout`` seconds."""
    try:
        return c10d.TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=timeout), wait_for_workers=False
        )
    except RuntimeError as error:
        raise RunError(
            f"no rank 0 of the trainer at {host}:{port} within {timeout:g} s; its process is dead or that "
            "address cannot be reached from here"
        ) from error


class Group:
    """One process's place among the ranks of a trainer. Made by ``join``."""

    def __init__(
        self,
        rank: int,
        size: int,
        store: Any,
        *,
        device: torch.device,
        mesh: DeviceMesh,
        timeout: float,
        sockets: Mapping[int, int],
    ) -> None:
        self.rank, self.size, self.device, self.mesh = rank, size, device, mesh
        self.timeout = timeout
        self.broken: str | None = None
        """Why nothing can be done together any more; None while all is well."""
        self._store = store
        self._sockets = sockets
        self._calls = 0

    @contextmanager
    def watched(self, stage: str) -> Iterator[None]:
        """Inside, a rank that is dead, hangs or fails becomes a RunError of every other rank.

        An error that every rank raises (a NaN, a wrong setting) leaves the group as it is.
        """
        if self.broken is not None:
            raise RunError(f"{self.broken}; start all ranks again from the last checkpoint")
        self._calls += 1
        try:
            yield
        except Exception as error:
            if _of_the_group(error):
                self.broken = self._who(stage, error)
                raise RunError(f"{self.broken}; start all ranks again from the last checkpoint") from error
            self._tell(stage, error)
            raise

    def close(self) -> None:
        """Leave; whoever still waits for this rank learns it at once. The process can join anew after it."""
        if self.broken is None:
            self.broken = f"rank {self.rank} has left the trainer's group"
        self._leave()

    def _leave(self) -> None:
        break_sockets(self._sockets)
        self._sockets = {}
        if not dist.is_initialized():
            return
        if self.device.type == "cuda":
            group: Any = c10d.group.WORLD
            with contextlib.suppress(RuntimeError):
                group._get_backend(self.device).abort()
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()

    def _tell(self, stage: str, error: Exception) -> None:
        """This rank has failed: say so, and leave unless every other rank fails in this very call too."""
        sentence = f"rank {self.rank} failed in {stage} ({type(error).__name__}: {error})"
        words = self._words(sentence)
        if words is None or any(word in (None, WAITS) for word in words.values()):
            self.broken = sentence
            self._leave()

    def _who(self, stage: str, error: Exception) -> str:
        """The group is broken: leave it, and say by whose fault."""
        seen = (str(error).strip().splitlines() or [type(error).__name__])[0]
        words = self._words(WAITS, leave=True)
        if words is None:
            return f"rank 0 of the trainer, which keeps the ranks' store, gives no answer in {stage} ({seen})"
        told = [word for word in words.values() if word not in (None, WAITS)]
        if told:
            return "the trainer's " + "; ".join(str(word) for word in told)
        silent = [rank for rank, word in words.items() if word is None]
        if not silent:
            return f"the connections of the trainer's ranks broke in {stage} ({seen})"
        names = f"rank {silent[0]}" if len(silent) == 1 else "ranks " + ", ".join(map(str, silent))
        return (
            f"{names} of the trainer gives no answer in {stage}: its process is dead, stuck, or cannot be "
            f"reached ({seen})"
        )

    def _words(self, own: str, *, leave: bool = False) -> dict[int, str | None] | None:
        """What each other rank says of this call, None for one that says nothing; None without the store.

        In a thread: the store's own calls can wait without end for a process that is stopped.
        """
        grace = max(1.0, min(GRACE, self.timeout / 4))
        words: dict[int, str | None] = {rank: None for rank in range(self.size) if rank != self.rank}
        answered = threading.Event()

        def ask() -> None:
            end = time.monotonic() + grace
            with contextlib.suppress(RuntimeError):
                self._store.set(f"{self._calls}/{self.rank}", own.encode())
                if leave:
                    self._leave()
                while None in words.values() and time.monotonic() < end:
                    for rank in [rank for rank, word in words.items() if word is None]:
                        if self._store.check([f"{self._calls}/{rank}"]):
                            words[rank] = self._store.get(f"{self._calls}/{rank}").decode()
                    time.sleep(LOOK)
                answered.set()

        asking = threading.Thread(target=ask, name="trimtab-who", daemon=True)
        asking.start()
        asking.join(grace + 2.0)
        return dict(words) if answered.is_set() else None


def join(
    rank: int, size: int, store: Any, *, timeout: float = 600.0, device: torch.device | str = "cpu"
) -> Group:
    """Become one of ``size`` ranks of a trainer: gloo between CPUs; on CUDA also nccl, between GPUs.

    store: of ``open_store`` in rank 0, of ``reach_store`` in the others. timeout: seconds that an operation
    of the group may take, which is how long a hung rank goes unnoticed. The process must not be in torch's
    default group yet. On the loopback interface where the store is, so that no port is open to others.

    Raises: RunError naming the ranks that do not come within ``timeout``.
    """
    _call_the_roll(rank, size, store, timeout)
    before = open_sockets()
    device = torch.device(device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
    try:
        with _interface(str(store.host)):
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=c10d.PrefixStore("trainer", store),
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
        mesh = init_device_mesh(device.type, (size,), mesh_dim_names=("shard",))
    except RuntimeError as error:
        raise RunError(
            f"rank {rank} of the trainer met all {size} ranks but could not connect to them ({error}); "
            "a process has died, or the ranks' machines cannot reach each other"
        ) from error
    sockets = {fd: number for fd, number in open_sockets().items() if before.get(fd) != number}
    return Group(rank, size, store, device=device, mesh=mesh, timeout=timeout, sockets=sockets)


def _call_the_roll(rank: int, size: int, store: Any, timeout: float) -> None:
    """Wait until all have come, so that whoever has not is named instead of waited for as a whole."""
    try:
        store.set(f"here/{rank}", b"1")
        missing = list(range(size))
        end = time.monotonic() + timeout
        while missing and time.monotonic() < end:
            with contextlib.suppress(c10d.DistStoreError):
                store.wait([f"here/{missing[0]}"], timedelta(seconds=STEP))
            missing = [other for other in missing if not store.check([f"here/{other}"])]
    except RuntimeError as error:
        raise RunError(f"rank {rank} lost rank 0 of the trainer while the ranks met ({error})") from error
    if missing:
        raise RunError(
            f"rank {', '.join(map(str, missing))} of the trainer's {size} did not come within {timeout:g} s; "
            "its process is dead, stuck, or cannot reach rank 0"
        )


@contextmanager
def _interface(host: str) -> Iterator[None]:
    """Have gloo listen on loopback where the ranks meet there; it reads this only when a group is made."""
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    key = "GLOO_SOCKET_IFNAME"
    if key in os.environ or not names or not host.startswith(LOOPBACK):
        yield
        return
    os.environ[key] = names[0]
    try:
        yield
    finally:
        del os.environ[key]


def _of_the_group(error: Exception) -> bool:
    """Whether an error comes from the connections between ranks, and not from what a rank computes."""
    if isinstance(error, c10d.DistBackendError | c10d.DistNetworkError | c10d.DistStoreError):
        return True
    return (
        isinstance(error, RuntimeError) and not isinstance(error, RunError) and "gloo" in str(error).lower()
    )
