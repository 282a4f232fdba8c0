"""What the machine can do at most: matrix products by dtype and shape, and memory bandwidth."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from benchmarks.speed.work import Speed

SHAPES = ((2048, 576, 1536), (2048, 1536, 576), (1024, 1024, 1024), (4096, 192, 512), (256, 576, 49152))
"""(rows, inner, columns): layers of SmolLM2-135M, a square, a layer of the tiny model, an output layer."""

SECONDS = 0.4


def limits(threads: int) -> dict[str, Any]:
    """``matmul``: GFLOP/s by dtype and shape, best of several; ``bandwidth``: GB/s reading and copying."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: dict[str, Any] = {"threads": threads, "matmul": {}}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        found["matmul"][name] = {}
        for rows, inner, columns in SHAPES:
            a, b = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
            seconds = _best(lambda a=a, b=b: a @ b)
            found["matmul"][name][f"{rows}x{inner}x{columns}"] = 2e-9 * rows * inner * columns / seconds
    words = torch.randn(32 << 20)
    target = torch.empty_like(words)
    size = 4e-9 * words.numel()
    found["bandwidth"] = {
        "reading": size / _best(lambda: words.sum()),
        "copying": 2 * size / _best(lambda: target.copy_(words)),
    }
    torch.set_num_threads(before)
    return found


def speed(found: dict[str, Any], numerics: str) -> Speed:
    """The best of what was measured, for a side that computes in ``numerics``."""
    dtype = "float32" if numerics == "float32" else "bfloat16"
    return Speed(1e9 * max(found["matmul"][dtype].values()), 1e9 * max(found["bandwidth"].values()))


def table(found: dict[str, Any]) -> Iterator[str]:
    """One row a shape, one column a dtype."""
    yield (
        "| product (rows x inner x columns) | " + " | ".join(f"{d}, GFLOP/s" for d in found["matmul"]) + " |"
    )
    yield "|---|" + "---|" * len(found["matmul"])
    first = next(iter(found["matmul"].values()))
    for shape in first:
        yield f"| {shape} | " + " | ".join(f"{of[shape]:.0f}" for of in found["matmul"].values()) + " |"
    told = ", ".join(f"{name} {rate:.0f} GB/s" for name, rate in found["bandwidth"].items())
    yield ""
    yield f"Memory: {told}; {found['threads']} threads."


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest call, over a fixed time."""
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best
