"""A whole training step against TRL's, turn by turn: medians, ratios, and shares of the machine's limits.

    python -m benchmarks.speed tiny                        the 1.8 M character model, 32 x 8, up to 96 tokens
    python -m benchmarks.speed smollm2 --rounds 5          SmolLM2-135M, 4 x 8, up to 64 tokens
    python -m benchmarks.speed smollm2 --json speed.json   and the numbers as JSON

TRL is tried in several configurations, a step or two each; the fastest one meets trimtab. Needs the extra
``speed``: pip install -e '.[speed]'
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.limits import limits
from benchmarks.speed.scenes import Scene, scenes
from benchmarks.speed.turns import Side, SideFailedError

WARM_UP = 1
OURS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"model.dtype": "bfloat16"},
    "autocast": {"trainer.autocast": True},
}
PEERS: dict[str, dict[str, Any]] = {
    "float32": {},
    "autocast": {"autocast": True},
    "bfloat16 weights": {"dtype": "bfloat16"},
    "bfloat16 weights, micro-batches of 8": {"dtype": "bfloat16", "per_device_train_batch_size": 8},
    "float32, micro-batches of 8": {"per_device_train_batch_size": 8},
    "float32, static cache": {"cache_implementation": "static"},
}


def main() -> None:
    """Try the peer's configurations, then alternate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scene", choices=("tiny", "smollm2"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=int, help="response tokens, instead of the scene's")
    parser.add_argument("--ours", default="float32", choices=sorted(OURS))
    parser.add_argument("--peer", choices=sorted(PEERS), help="meet this configuration without a search")
    parser.add_argument("--smollm2", type=Path, default=Path("models/smollm2-135m-instruct"))
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has TRL")
    parser.add_argument("--work", type=Path, default=Path("runs/speed"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    scene = scenes(args.work, args.smollm2, args.limit)[args.scene]
    tried = {} if args.peer else _search(scene, args)
    best = args.peer or min(tried, key=lambda name: tried[name])
    ours = _side("trimtab", "benchmarks.speed.ours", scene, OURS[args.ours], args, sys.executable)
    peer = _side("trl", "benchmarks.speed.peer", scene, PEERS[best], args, args.peer_python)
    machine = limits()
    _alternate([ours, peer], args)
    result = {
        "scene": json.loads(scene.to_json()),
        "ours": args.ours,
        "peer": best,
        "tried": tried,
        "limits": machine,
        "steps": {side.name: side.steps for side in (ours, peer)},
    }
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(_table(result)))


def _side(
    name: str, module: str, scene: Scene, options: dict[str, Any], args: argparse.Namespace, python: str
) -> Side:
    return Side(name, module, scene.to_json(), {**options, "threads": args.threads}, python)


def _search(scene: Scene, args: argparse.Namespace) -> dict[str, float]:
    """Seconds of the second step of each of TRL's configurations; one that fails is told and left out."""
    found: dict[str, float] = {}
    for name, options in PEERS.items():
        side = _side("trl", "benchmarks.speed.peer", scene, options, args, args.peer_python)
        try:
            side.start(args.work / "peer.log")
            side.turn(keep=False)
            found[name] = side.turn(keep=True)["seconds"]
            print(f"trl, {name}: {found[name]:.2f} s", file=sys.stderr)
        except SideFailedError as fault:
            print(f"trl, {name}: {str(fault).splitlines()[-1]}", file=sys.stderr)
        finally:
            side.stop()
    return found


def _alternate(sides: list[Side], args: argparse.Namespace) -> None:
    for side in sides:
        side.start(args.work / f"{side.name}.log")
    try:
        for turn in range(WARM_UP + args.rounds):
            for side in sides if turn % 2 else reversed(sides):
                numbers = side.turn(keep=turn >= WARM_UP)
                print(f"{side.name}: {numbers['seconds']:.2f} s", file=sys.stderr)
    finally:
        for side in sides:
            side.stop()


def _table(result: dict[str, Any]) -> Iterator[str]:
    scene, steps = result["scene"], result["steps"]
    size = f"{scene['prompts']} prompts x {scene['samples']} answers, up to {scene['limit']} tokens"
    yield f"{scene['name']}: {size}"
    yield ""
    yield "| | seconds a step | tokens a second | peak memory |"
    yield "|---|---|---|---|"
    for name, label in (("trimtab", result["ours"]), ("trl", result["peer"])):
        seconds = [step["seconds"] for step in steps[name]]
        speed = median(step["tokens"] / step["seconds"] for step in steps[name])
        peak = max(step["peak_bytes"] for step in steps[name]) / (1 << 30)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        yield f"| {name} ({label}) | {median(seconds):.2f} ({spread}) | {speed:.0f} | {peak:.2f} GiB |"
    pairs = zip(steps["trl"], steps["trimtab"], strict=True)
    ratios = sorted(peer["seconds"] / ours["seconds"] for peer, ours in pairs)
    yield ""
    yield f"ratio, pair by pair: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}"
    stages = {
        key: median(s["stages"].get(key, 0.0) for s in steps["trimtab"])
        for key in steps["trimtab"][0]["stages"]
    }
    told = ", ".join(f"{k} {v:.2f} s" for k, v in sorted(stages.items(), key=lambda kv: -kv[1]) if v >= 0.01)
    yield f"trimtab's stages: {told}"
    for dtype, shapes in result["limits"]["matmul"].items():
        yield f"matmul {dtype}: " + ", ".join(f"{s} {g:.0f}" for s, g in shapes.items()) + " GFLOP/s"
    yield f"memory: {result['limits']['bandwidth']:.1f} GB/s; {result['limits']['threads']} threads"


if __name__ == "__main__":
    main()
