r"""What it takes to give new weights to who samples: bytes and seconds of a push, by way.

    python benchmarks/transfer.py                      the embedded model
    python benchmarks/transfer.py --vllm --json transfer.json \
        --model embedded/sums --model models/smollm2-135m-instruct
    python benchmarks/transfer.py --report transfer.json --write      its table, also into docs/vllm.md

in process      LocalEngine.load_weights of tensors that are not its own: a copy in memory
gloo, N to M    a broadcast over loopback to M processes that copy into a model of their own, until all have
                confirmed; nothing touches a disk
vLLM            VllmEngine.load_weights: pause, broadcast into its worker, repacking, cache reset, resume
                (with --vllm, where vLLM is installed)

Each way is warmed up by one push and then measured ``--repeats`` times; the table gives the median and the
range. Bytes are those of the tensors, counted once however many receive. Run it on a quiet machine.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from trimtab.config.cluster import VllmConfig
from trimtab.distributed.skeleton import load_skeleton
from trimtab.distributed.transfer import Described, Meeting, Receiver, Sender, described, free_port
from trimtab.models import load_model
from trimtab.rollout.local import LocalEngine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vllm.md"
START, END = "<!-- benchmarks/transfer.py writes from here -->", "<!-- to here -->"
HEAD = ("| model | way | MB | seconds (median) | range | MB/s |", "|---|---|---:|---:|---:|---:|")
PATIENCE = 300.0
Weights = list[tuple[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Pushes of one model by one way; seconds of each, bytes of one."""

    model: str
    way: str
    bytes: int
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def row(self) -> str:
        rate = self.bytes / self.median / 1e6
        low, high = min(self.seconds), max(self.seconds)
        return (
            f"| {self.model} | {self.way} | {self.bytes / 1e6:.1f} | {self.median:.4f} | "
            f"{low:.4f} to {high:.4f} | {rate:.0f} |"
        )


@dataclass(frozen=True, slots=True)
class Told:
    """All pushes of one call of this script, and the machine they were measured on.

    threads: torch's own in this process. cores: of the machine; None in a file from before they were written.
    """

    pushes: list[Measured]
    torch: str
    threads: int
    python: str
    cores: int | None

    @classmethod
    def here(cls, pushes: list[Measured]) -> Told:
        return cls(pushes, torch.__version__, torch.get_num_threads(), sys.version.split()[0], os.cpu_count())

    @classmethod
    def read(cls, file: Path) -> Told:
        """What ``write`` has written. Raises SystemExit where it is not that."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            pushes = [Measured(**one) for one in found.pop("pushes")]
            return cls(pushes, **{"cores": None, **found})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{file} is no file of benchmarks/transfer.py --json ({error})") from None

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def machine(self) -> str:
        """What the pushes were measured on, as a sentence."""
        counts = sorted({len(one.seconds) for one in self.pushes})
        cores = "" if self.cores is None else f"{self.cores} cores, "
        return (
            f"Median and range of {' or '.join(map(str, counts))} pushes after one that does not count; "
            f"{cores}{self.threads} threads of torch {self.torch}, Python {self.python}."
        )

    def lines(self) -> list[str]:
        """The table, and the machine below it."""
        return [*HEAD, *(one.row() for one in self.pushes), "", self.machine()]


def receive(meeting: Meeting, rank: int, offered: list[Described], pipe: Connection) -> None:
    """A receiving process: takes pushes into tensors of its own and confirms each, until the pipe closes."""
    torch.set_num_threads(1)
    own = {one.name: torch.empty(one.shape, dtype=one.kind) for one in offered}
    receiver = Receiver(meeting, rank)
    while pipe.recv():
        for name, tensor in receiver.receive(offered):
            own[name].copy_(tensor)
        pipe.send(True)
    receiver.close()


@contextmanager
def broadcast(weights: Weights, receivers: int) -> Iterator[Callable[[], None]]:
    """A push to so many processes, which lasts until each of them has all."""
    meeting = Meeting("127.0.0.1", free_port(), 1 + receivers, PATIENCE)
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(1, 1 + receivers):
        here, there = context.Pipe()
        told = (meeting, rank, described(weights), there)
        processes.append(context.Process(target=receive, args=told, daemon=True))
        processes[-1].start()
        pipes.append(here)
    sender = Sender(meeting)

    def push() -> None:
        for pipe in pipes:
            pipe.send(True)
        sender.send(weights)
        for pipe in pipes:
            pipe.recv()

    try:
        yield push
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(False)
            process.join(10.0)
        sender.close()


@contextmanager
def in_process(path: str, weights: Weights) -> Iterator[Callable[[], None]]:
    """A push into an engine of this process."""
    engine = LocalEngine(load_model(path, device="cpu", dtype="float32"))
    yield lambda: asyncio.run(engine.load_weights(weights, 1))


@contextmanager
def into_vllm(path: str, weights: Weights) -> Iterator[Callable[[], None]]:
    """A push into a running vLLM engine, until it samples again."""
    from trimtab.distributed.vllm_engine import VllmEngine

    length = min(load_skeleton(path).context, 1024)
    started = VllmEngine.start(path, config=VllmConfig(cache_gib=0.25), max_model_len=length, dtype="float32")
    engine = asyncio.run(started)
    try:
        yield lambda: asyncio.run(engine.load_weights(weights, 1))
    finally:
        asyncio.run(engine.close())


def measure(push: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of each of so many pushes, after one that does not count."""
    push()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        push()
        seconds.append(time.perf_counter() - began)
    return seconds


def ways(path: str, weights: Weights, vllm: bool) -> Iterator[tuple[str, Any]]:
    """The ways to measure, each with what opens it."""
    yield "in process", in_process(path, weights)
    yield "gloo, 1 to 1", broadcast(weights, 1)
    yield "gloo, 1 to 2", broadcast(weights, 2)
    if vllm:
        yield "vLLM", into_vllm(path, weights)


def write_between(path: Path, lines: list[str]) -> None:
    """Replace what stands between the two marks."""
    page = path.read_text(encoding="utf-8")
    page, count = re.subn(
        f"{START}.*?{END}", lambda _: "\n".join([START, *lines, END]), page, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{path} has {count} places between {START} and {END}; it needs one")
    path.write_text(page, encoding="utf-8")


def pushed(asked: argparse.Namespace) -> list[Measured]:
    """Measure what was asked for, each printed as soon as it is known."""
    measured: list[Measured] = []
    print("\n".join(HEAD), flush=True)
    for path in asked.model or ["embedded/sums"]:
        model = load_model(path, device="cpu", dtype="float32")
        weights = [(name, p.detach().clone()) for name, p in model.module.named_parameters()]
        size = sum(one.bytes for one in described(weights))
        for way, opened in ways(path, weights, asked.vllm):
            with opened as push:
                measured.append(Measured(Path(path).name, way, size, measure(push, asked.repeats)))
            print(measured[-1].row(), flush=True)
    return measured


def main() -> None:
    """Measure or read, print the table, write the file and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", action="append", help="a folder or embedded/NAME; may be repeated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--json", type=Path, help="write what was measured into this file")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, read what --json wrote")
    parser.add_argument("--write", action="store_true", help="put the table into docs/vllm.md")
    asked = parser.parse_args()
    if asked.report:
        told = Told.read(asked.report)
        print("\n".join(told.lines()))
    else:
        told = Told.here(pushed(asked))
        print(f"\n{told.machine()}")
    if asked.json:
        told.write(asked.json)
    if asked.write:
        write_between(PAGE, told.lines())


if __name__ == "__main__":
    main()
