"""What the machine can do at most: matrix products by dtype and shape, and memory bandwidth."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

SHAPES = ((2048, 576, 1536), (2048, 1536, 576), (1024, 1024, 1024), (4096, 192, 512), (256, 576, 49152))
"""(rows, inner, columns): layers of SmolLM2-135M, a square, a layer of the tiny model, an output layer."""

SECONDS = 0.4


def limits() -> dict[str, Any]:
    """``matmul``: GFLOP/s by dtype and shape, the best of several; ``bandwidth``: GB/s read and written."""
    found: dict[str, Any] = {"threads": torch.get_num_threads(), "matmul": {}}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        found["matmul"][name] = {}
        for rows, inner, columns in SHAPES:
            a, b = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
            seconds = _best(lambda a=a, b=b: a @ b)
            found["matmul"][name][f"{rows}x{inner}x{columns}"] = 2e-9 * rows * inner * columns / seconds
    words = torch.randn(32 << 20)
    target = torch.empty_like(words)
    found["bandwidth"] = 2e-9 * words.numel() * 4 / _best(lambda: target.copy_(words))
    return found


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest call, over a fixed time."""
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best
