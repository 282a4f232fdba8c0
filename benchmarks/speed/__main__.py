"""A whole training step against TRL's, turn by turn: medians, ratios, and shares of the machine's limits.

    python -m benchmarks.speed tiny                  the 1.8 M character model, 32 x 8, up to 96 tokens
    python -m benchmarks.speed smollm2 --rounds 5    SmolLM2-135M, 4 x 8, up to 64 tokens
    python -m benchmarks.speed sums                  real data and a real grader: some groups teach nothing
    python -m benchmarks.speed tiny --search         only look for TRL's fastest configuration
    python -m benchmarks.speed memory                peak memory of an update, SmolLM2 with 512-token answers
    python -m benchmarks.speed sampling              sampling alone, beside generate and vLLM's CPU wheel
    python -m benchmarks.speed overlap               a slow grader, beside sampling and after it
    python -m benchmarks.speed linear                an update's seconds and memory from 1k to 64k tokens
    python -m benchmarks.speed learning              do the fast and the plain path learn the same?
    python -m benchmarks.speed compile               an update by torch.compile, with its start-up

Tables go to standard output, numbers to ``--json``, and with ``--write docs/speed.md`` into the page. A
search is kept in ``--work`` and goes on where it was interrupted. Needs the extra ``speed``:
pip install '.[speed]'
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed import compare, compiling, document, learning, limits, linear, memory, overlap, sampling
from benchmarks.speed import search as searching
from benchmarks.speed.configurations import NUMERICS, Configuration
from benchmarks.speed.scenes import Scene, scene_of
from benchmarks.speed.sides import peer_side, sides_of
from benchmarks.speed.turns import alternate

STEPS = {"tiny": 2, "sums": 2, "smollm2": 1}
"""Counted steps of one try in a search."""

SHORT = {"smollm2": 16}
"""Response tokens in a search, where whole answers would take too long."""

Tables = Mapping[str, Iterable[str]]


def main() -> None:
    """Measure, print, and write where asked."""
    args = _arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[argparse.Namespace], tuple[dict[str, Any], Tables]]] = {
        "memory": memory.measure,
        "sampling": sampling.measure,
        "overlap": overlap.measure,
        "linear": linear.measure,
        "learning": learning.measure,
        "compile": compiling.measure,
    }
    result, tables = parts.get(args.what, _steps)(args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    for name, lines in tables.items():
        kept = list(lines)
        print("\n".join([f"## {name}", "", *kept, ""]), flush=True)
        if args.write:
            document.write(args.write, name, kept)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = ("tiny", "smollm2", "sums", "memory", "sampling", "overlap", "linear", "learning", "compile")
    parser.add_argument("what", choices=what)
    parser.add_argument("--search", action="store_true", help="only try the peer's configurations")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=int, help="response tokens, instead of the scene's")
    parser.add_argument("--prompts", type=int, help="groups a step, instead of the scene's")
    parser.add_argument("--numerics", nargs="+", choices=NUMERICS, default=list(NUMERICS))
    parser.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=JSON", help="a setting of trimtab's side"
    )
    parser.add_argument("--seeds", type=int, default=4, help="of learning")
    parser.add_argument("--steps", type=int, default=16, help="of learning")
    parser.add_argument("--smollm2", type=Path, default=Path("models/smollm2-135m-instruct"))
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has TRL")
    parser.add_argument("--vllm-python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--work", type=Path, default=Path("runs/speed"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    return parser.parse_args()


def _steps(args: argparse.Namespace) -> tuple[dict[str, Any], Tables]:
    """Search where needed, measure the machine, and let both sides take turns in every numerics."""
    scene = scene_of(args.what, args.work, args.smollm2.resolve(), limit=args.limit, prompts=args.prompts)
    tried = _tried(scene, args)
    searching.search(_short(scene), tried, args.numerics)
    found = {f"{args.what} search": searching.table(tried.found)}
    if args.search:
        return {"tried": tried.found}, found
    result: dict[str, Any] = {
        "scene": json.loads(scene.to_json()),
        "size": scene.size,
        "tried": tried.found,
        "limits": limits.limits(args.threads),
        "pairs": [],
    }
    for numerics in args.numerics:
        sides = sides_of(scene, numerics, tried.best(numerics), args)
        alternate(sides, rounds=args.rounds, warm_up=1, folder=args.work)
        result["pairs"].append(
            {
                "numerics": numerics,
                "peer": tried.best(numerics).name,
                "sides": {side.name: side.steps for side in sides},
            }
        )
    shares = {f"{args.what} shares": compare.share_table(result)} if scene.forced else {}
    return result, {
        f"{args.what} steps": [*compare.step_table(result), *compare.silence(result)],
        **shares,
        f"{args.what} profile": compare.profile_table(result),
        f"{args.what} limits": limits.table(result["limits"]),
        **found,
    }


def _short(scene: Scene) -> Scene:
    fields = json.loads(scene.to_json())
    return Scene(**fields | {"limit": min(scene.limit, SHORT.get(scene.name, scene.limit))})


def _tried(scene: Scene, args: argparse.Namespace) -> searching.Tried:
    short = _short(scene)

    def attempt(configuration: Configuration) -> dict[str, Any]:
        side = peer_side(short, configuration, args)
        return searching.attempt(side, args.work, STEPS.get(scene.name, 1), tried.patience)

    name = f"search-{short.name}-{short.prompts}x{short.samples}x{short.limit}-{args.threads}.json"
    tried = searching.Tried(args.work / name, attempt)
    return tried


if __name__ == "__main__":
    main()
