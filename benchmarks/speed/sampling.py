"""Sampling alone, in turn: trimtab's engine and its plain path, ``generate``, and vLLM's CPU wheel."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.speed import limits
from benchmarks.speed.compare import WORDS
from benchmarks.speed.scenes import Scene, scene_of
from benchmarks.speed.turns import Numbers, Side, SideFailedError
from benchmarks.speed.work import Shape, sampling_seconds

ENGINES = ("trimtab", "plain", "generate", "vllm")
SIZES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "tiny": ((32, None),),
    "smollm2": ((8, None), (4, None)),
}
"""Groups and response tokens (None: the scene's) for each scene; 8 groups of 8 are 64 sequences."""

VLLM = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """All engines on all scenes, alternately; one that does not start is told and left out."""
    rows = []
    for name, sizes in SIZES.items():
        for prompts, limit in sizes:
            scene = scene_of(
                name, args.work, args.smollm2.resolve(), prompts=prompts, limit=args.limit or limit
            )
            for numerics in [one for one in args.numerics if one != "autocast"]:
                rows.append(_row(scene, numerics, args))
    result = {"limits": limits.limits(args.threads), "rows": rows}
    return result, {"sampling": table(result)}


def _row(scene: Scene, numerics: str, args: argparse.Namespace) -> dict[str, Any]:
    options = {"threads": args.threads, "dtype": numerics}
    sides = [
        Side(
            engine,
            "benchmarks.speed.engines",
            scene.to_json(),
            options | {"engine": engine},
            args.vllm_python if engine == "vllm" else sys.executable,
            VLLM if engine == "vllm" else {},
        )
        for engine in ENGINES
    ]
    faults: dict[str, str] = {}
    try:
        for side in sides:
            side.start(args.work)
        for turn in range(1 + args.rounds):
            for side in sides if turn % 2 else reversed(sides):
                if side.name not in faults:
                    try:
                        side.turn(keep=turn > 0)
                    except SideFailedError as fault:
                        faults[side.name] = str(fault).strip().splitlines()[-1][:160]
    finally:
        for side in sides:
            side.stop()
    kept = {side.name: side.steps for side in sides if side.name not in faults}
    return {
        "scene": json.loads(scene.to_json()),
        "size": scene.size,
        "numerics": numerics,
        "sides": kept,
        "faults": faults,
    }


def pace(steps: list[Numbers]) -> float:
    """Tokens a second, the median turn's."""
    return median(step["tokens"] / step["seconds"] for step in steps)


def table(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of each engine, ratios to trimtab's, and trimtab's share of the limit."""
    yield (
        "| scene | numerics | trimtab, tokens a second | share of the limit | plain path | trimtab / plain "
        "| generate | trimtab / generate | vLLM | trimtab / vLLM |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in result["rows"]:
        sides, scene = row["sides"], row["scene"]
        machine = limits.speed(result["limits"], row["numerics"])
        shape, size = Shape.of(scene["model"]), 2 if row["numerics"] == "bfloat16" else 4
        share = median(
            sampling_seconds(shape, step["prompt_lengths"], step["lengths"], machine, size) / step["seconds"]
            for step in sides["trimtab"]
        )
        ours = pace(sides["trimtab"])
        cells = [f"{scene['name']}, {row['size']}", WORDS[row["numerics"]], f"{ours:.0f}", f"{share:.0%}"]
        for engine in ENGINES[1:]:
            if engine in sides:
                theirs = pace(sides[engine])
                cells += [f"{theirs:.0f}", f"**{ours / theirs:.2f}**"]
            else:
                cells += [f"does not run: {row['faults'].get(engine, 'unknown')}", ""]
        yield f"| {' | '.join(cells)} |"
