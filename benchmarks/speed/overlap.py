"""A slow grader beside sampling and after it: what overlapping the two saves of a step."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.speed.scenes import scene_of
from benchmarks.speed.sides import our_side
from benchmarks.speed.turns import alternate
from benchmarks.speed.useful import SLEEP

INSTANT, BESIDE, AFTER = "instant grader", "slow grader, beside sampling", "slow grader, after sampling"


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """Three processes in turn on the tiny scene."""
    scene = scene_of("tiny", args.work, args.smollm2.resolve(), limit=args.limit, prompts=args.prompts)
    sides = [
        our_side(INSTANT, scene, "float32", args),
        our_side(BESIDE, scene, "float32", args, slow=True),
        our_side(AFTER, scene, "float32", args, slow=True, together=True),
    ]
    alternate(sides, rounds=args.rounds, warm_up=1, folder=args.work)
    result = {
        "scene": json.loads(scene.to_json()),
        "size": scene.size,
        "sides": {side.name: side.steps for side in sides},
    }
    return result, {"overlap": table(result)}


def table(result: dict[str, Any]) -> Iterator[str]:
    """Seconds of the step, of sampling, and of what grading added to it."""
    yield (
        f"{result['size']}; the slow grader takes {SLEEP * 1000:.0f} ms an answer, in each of its processes "
        "one at a time."
    )
    yield ""
    yield "| | seconds a step | sampling | grading added | update |"
    yield "|---|---|---|---|---|"
    for name, steps in result["sides"].items():
        parts = [median(s["stages"].get(part, 0.0) for s in steps) for part in ("sample", "grade", "update")]
        whole = median(step["seconds"] for step in steps)
        yield f"| {name} | {whole:.2f} | " + " | ".join(f"{seconds:.2f}" for seconds in parts) + " |"
    beside, after = (median(s["seconds"] for s in result["sides"][name]) for name in (BESIDE, AFTER))
    yield ""
    yield f"Overlap saves {after - beside:.2f} s of {after:.2f} s."
