"""Do the fast and the plain path learn the same? The default recipe by both, over several seeds.

A difference of two curves means nothing by itself: any two seeds differ too. So each path gets seeds of its
own, and the curves are shuffled between the paths: if the true split is no more different than a random one,
the paths agree within seed noise.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from benchmarks.speed.configurations import PLAIN_PATH

PATHS = ("fast", "plain")
CURVES = {"reward/outcome": "reward", "policy/entropy": "entropy", "length/mean": "length"}
"""Metrics whose curves are compared, and how the table calls them."""

EVALUATED = 256
"""Held-out prompts of the final evaluation."""

ALPHA = 0.05
LAST = 5
"""Steps that "at the end" averages."""


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """Train what is not there yet, one thread a run, and compare."""
    if smallest_chance(args.seeds) > ALPHA:
        raise SystemExit(
            f"{args.seeds} seeds can never show a difference at {ALPHA:.0%}; give --seeds 4 or more"
        )
    jobs = [(path, seed) for seed in range(args.seeds) for path in PATHS]
    with ThreadPoolExecutor(args.threads) as pool:
        folders = dict(zip(jobs, pool.map(lambda job: _train(*job, args), jobs), strict=True))
    result = {
        "seeds": args.seeds,
        "steps": args.steps,
        "runs": {path: [_read(folders[path, seed]) for seed in range(args.seeds)] for path in PATHS},
    }
    return result, {"learning": table(result)}


def _train(path: str, seed: int, args: argparse.Namespace) -> Path:
    folder = args.work / f"learning-{args.steps}" / f"{path}-{seed}"
    if (folder / "summary.json").exists():
        return folder
    own = seed + PATHS.index(path) * args.seeds  # no seed twice, so that the runs are independent
    settings = [f"run.steps={args.steps}", f"run.seed={own}", f"evaluation.prompts={EVALUATED}"]
    if path == "plain":
        settings += [f"{name}={_spelt(value)}" for name, value in PLAIN_PATH.items()]
    command = [sys.executable, "-m", "trimtab", "train", "quickstart", *settings]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            [*command, "--out", str(folder), "--resume", "--plain"],
            stdout=log,
            stderr=log,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise SystemExit(f"{folder.name} stopped with exit code {done.returncode}, see {folder / 'log.txt'}")
    return folder


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(folder: Path) -> dict[str, Any]:
    from trimtab.record.reader import RunReader

    reader = RunReader(folder)
    summary = json.loads(reader.folder.summary.read_text(encoding="utf-8"))
    curves = {name: [float(v) for v in reader.history.series(name).values] for name in CURVES}
    return {"curves": curves, "final": summary["evaluation"]["final"]["pass@1"]}


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Mean over steps of the distance between the mean curves; both [seeds, steps]."""
    return float(np.abs(first.mean(0) - second.mean(0)).mean())


def smallest_chance(seeds: int) -> float:
    """The smallest value that ``chance`` can have: the true split and its mirror image."""
    return 2 / math.comb(2 * seeds, seeds)


def chance(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Share of all splits of the runs into two halves that are at least as far apart as the true one.

    curves: of each metric, both paths' [seeds, steps]. Distances are summed over metrics, each in units of
    the standard deviation between runs.
    """
    pairs = [np.concatenate(sides) for sides in curves]
    pairs = [both / max(both.std(0, ddof=1).mean(), 1e-12) for both in pairs]
    runs, half = len(pairs[0]), len(curves[0][0])
    found = {
        chosen: sum(distance(both[list(chosen)], np.delete(both, chosen, 0)) for both in pairs)
        for chosen in combinations(range(runs), half)
    }
    true = found[tuple(range(half))]
    return float(np.mean([one >= true - 1e-9 for one in found.values()]))


def table(result: dict[str, Any]) -> Iterator[str]:
    """Each curve's distance between the paths, and how often chance makes a larger one."""
    runs = result["runs"]
    yield f"The default recipe, {result['steps']} steps, {result['seeds']} seeds a path."
    yield ""
    yield (
        "| curve | fast path, at the end | plain path, at the end | mean distance "
        "| splits at least as far apart |"
    )
    yield "|---|---|---|---|---|"
    fast, plain = (runs[path] for path in PATHS)
    curves = {
        word: (
            np.array([run["curves"][name] for run in fast]),
            np.array([run["curves"][name] for run in plain]),
        )
        for name, word in CURVES.items()
    }
    curves["held-out pass@1"] = (
        np.array([[run["final"]] for run in fast]),
        np.array([[run["final"]] for run in plain]),
    )
    for word, sides in curves.items():
        last = [_spread([float(curve[-LAST:].mean()) for curve in side]) for side in sides]
        yield f"| {word} | {last[0]} | {last[1]} | {distance(*sides):.3f} | {chance([sides]):.0%} |"
    together = chance(list(curves.values()))
    agree = together > ALPHA
    yield ""
    yield (
        f"All of them at once: {together:.0%} of the splits are at least as far apart, so the two paths "
        f"{'agree' if agree else 'DO NOT agree'} within seed noise (limit {ALPHA:.0%}; the smallest share "
        f"that {result['seeds']} seeds can show is {smallest_chance(result['seeds']):.1%})."
    )


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"
