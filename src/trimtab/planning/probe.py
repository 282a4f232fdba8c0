"""This machine's own limits in about two seconds: matrix products, memory, and what busy cores cost."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from trimtab.planning.figures import Origin
from trimtab.planning.hardware import SHEETS, Device

SECONDS = 0.3
LOOPBACK = 2e9
"""Bytes a second between two processes of one machine over loopback; assumed, the probe opens no socket."""

NEIGHBOUR = """
import time, torch
torch.set_num_threads(1)
a, w, m = torch.randn(64, 256), torch.randn(256, 256), torch.randn(1 << 20)
print("busy", flush=True)
end = time.time() + 20
while time.time() < end:
    for _ in range(50):
        a = torch.tanh(a @ w)
    m.add_(1.0)
"""


def probe() -> Device:
    """This machine: a known GPU by its data sheet, else measured on the CPU's cores.

    The slowdown is that of a mixed load on one thread while every other core runs the like.
    """
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        known = next((device for key, device in SHEETS.items() if key.upper() in name.upper()), None)
        if known is not None:
            return known
    from trimtab.record.machine import hardware

    told = hardware()
    cores, threads = int(told["cores"]), min(int(told["threads"]), int(told["cores"]))
    a, b, words = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(16 << 20)
    target = torch.empty_like(words)
    product, copy = _fastest(lambda: a @ b), _fastest(lambda: target.copy_(words))
    return Device(
        name=str(told["processor"]),
        flops=2.0 * 1024**3 / product,
        memory=float(told["memory_bytes"]),
        bandwidth=2.0 * words.nbytes / copy,
        link=LOOPBACK,
        network=LOOPBACK,
        per_node=1 << 20,
        cores=cores,
        threads=threads,
        slowdown=slowdown(cores) if cores > 1 else 1.0,
        slowdown_from="a probe of small products beside the like",
        origin=Origin.MEASURED,
        source=f"probe of this machine, {threads} threads",
    )


def slowdown(cores: int) -> float:
    """How many times as long a load on one core takes while all others are busy; at least 1."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    neighbours: list[subprocess.Popen[str]] = []
    try:
        alone = _load_seconds()
        for _ in range(cores - 1):
            command = [sys.executable, "-c", NEIGHBOUR]
            neighbours.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for neighbour in neighbours:
            assert neighbour.stdout is not None
            neighbour.stdout.readline()
        return max(1.0, _load_seconds() / alone)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
        torch.set_num_threads(threads)


def _load_seconds() -> float:
    """Median seconds of a round of small products, elementwise work and a walk through memory."""
    import torch

    a, w, m = torch.randn(64, 256), torch.randn(256, 256), torch.randn(1 << 20)
    found: list[float] = []
    end = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(50):
            a = torch.tanh(a @ w)
        m.add_(1.0)
        found.append(time.perf_counter() - began)
    return median(found)


def _fastest(run: Callable[[], object]) -> float:
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best
