"""Does a cluster learn what one process learns? The default recipe with two engines and two trainer ranks.

    python benchmarks/cluster.py                     every run that is missing, then the table
    python benchmarks/cluster.py --run single-0      that run only
    python benchmarks/cluster.py --report --write    the table alone, also into docs/cluster.md, and a picture

Five runs of one process, with a seed each, say how far apart two runs of the same thing are. A
sixth, of two engines and two trainer ranks with another seed, has to lie where a sixth of one process would:
within the 95% prediction interval of the five, mean +- t s sqrt(1 + 1/5), s their standard deviation.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.record.reader import RunReader

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- benchmarks/cluster.py writes from here -->", "<!-- to here -->"
PICTURE = ROOT / "docs" / "images" / "cluster-learning.svg"
SEEDS = 5
STUDENT = 2.776
"""The 97.5% quantile of Student's t with SEEDS - 1 degrees of freedom."""

BLOCK = 10
"""Steps that one row of the table averages."""

CURVES = {"reward/outcome": "reward", "policy/entropy": "entropy", "length/mean": "length"}
SINGLE = {f"single-{seed}": (f"run.seed={seed}",) for seed in range(SEEDS)}
CLUSTER = {"cluster": (f"run.seed={SEEDS}", "cluster.engines=2", "cluster.trainers=2")}
RUNS = {**SINGLE, **CLUSTER}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The mean of the runs of one process, and where another such run falls with 95%."""

    mean: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, runs_SK: Floats) -> Interval:
        """runs_SK: a row a run. Any number of columns."""
        mean = runs_SK.mean(0)
        reach = STUDENT * runs_SK.std(0, ddof=1) * math.sqrt(1.0 + 1.0 / len(runs_SK))
        return cls(mean, mean - reach, mean + reach)

    def holds(self, value_K: Floats) -> NDArray[np.bool_]:
        """Whether each value lies inside."""
        return (self.low <= value_K) & (value_K <= self.high)


def main() -> None:
    """Train what is missing and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/cluster"), help="where the runs lie (runs/cluster)"
    )
    parser.add_argument("--run", choices=RUNS, help="make this run only")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--write", action="store_true", help="put table and picture into docs/")
    args = parser.parse_args()
    for name in RUNS if not args.report else ():
        if args.run in (None, name) and not (args.runs / name / "summary.json").exists():
            print(f"running {name}", file=sys.stderr)
            train(name, args.runs / name)
    if args.run is not None:
        return
    lines = list(table(args.runs))
    print("\n".join(lines))
    if args.write:
        write_between(ROOT / "docs" / "cluster.md", lines)
        PICTURE.write_text(picture(args.runs), encoding="utf-8")


def train(name: str, folder: Path) -> None:
    """The default recipe in a process of its own, one thread a process."""
    command = [sys.executable, "-m", "trimtab", "train", "quickstart", "--plain", "--out", str(folder)]
    done = subprocess.run(
        [*command, *RUNS[name]], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def curve(folder: Path, metric: str) -> Floats:
    """One metric of every step."""
    return np.array([float(v) for v in RunReader(folder).history.series(metric).values])


def final(folder: Path) -> float:
    """Held-out pass@1 after training."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return float(summary["evaluation"]["final"]["pass@1"])


def blocks(curve_K: Floats) -> Floats:
    """Means of BLOCK steps in a row."""
    return curve_K[: len(curve_K) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(1)


def table(runs: Path) -> Iterator[str]:
    """Rows of BLOCK steps by curve, the held-out result, and how many lie inside."""
    inside: list[bool] = []
    yield "| curve | steps | one process, mean and 95% interval | 2 engines + 2 ranks | inside |"
    yield "|---|---|---|---|---|"
    rows: list[tuple[str, str, Interval, Floats]] = []
    for metric, word in CURVES.items():
        interval = Interval.of(np.stack([blocks(curve(runs / name, metric)) for name in SINGLE]))
        value = blocks(curve(runs / "cluster", metric))
        for k in range(len(value)):
            one = Interval(interval.mean[k : k + 1], interval.low[k : k + 1], interval.high[k : k + 1])
            rows.append((word, f"{k * BLOCK + 1} to {(k + 1) * BLOCK}", one, value[k : k + 1]))
    finals = Interval.of(np.array([[final(runs / name)] for name in SINGLE]))
    rows.append(("held-out pass@1", "after", finals, np.array([final(runs / "cluster")])))
    for word, steps, one, value in rows:
        inside.append(bool(one.holds(value)[0]))
        spread = f"{one.mean[0]:.3f} ({one.low[0]:.3f} to {one.high[0]:.3f})"
        yield f"| {word} | {steps} | {spread} | {value[0]:.3f} | {'yes' if inside[-1] else '**no**'} |"
    yield ""
    yield f"{sum(inside)} of {len(inside)} inside; of a sixth run of one process 95% would be expected."


def write_between(path: Path, lines: list[str]) -> None:
    """Replace what stands between the two marks."""
    page = path.read_text(encoding="utf-8")
    page, count = re.subn(
        f"{START}.*?{END}", lambda _: "\n".join([START, *lines, END]), page, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{path} has {count} places between {START} and {END}; it needs one")
    path.write_text(page, encoding="utf-8")


def picture(runs: Path) -> str:
    """The rewards of all runs as an SVG: the five thin, the cluster thick."""
    width, height, margin = 640, 300, 40
    curves = {name: curve(runs / name, "reward/outcome") for name in RUNS}
    low, high = min(c.min() for c in curves.values()), max(c.max() for c in curves.values())

    def line(values: Floats, style: str) -> str:
        x = margin + np.arange(len(values)) / (len(values) - 1) * (width - 2 * margin)
        y = height - margin - (values - low) / (high - low) * (height - 2 * margin)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        return f'<polyline fill="none" {style} points="{points}"/>'

    steps = len(curves["cluster"])
    words = (
        (
            margin,
            20,
            f"reward of a step, {low:.2f} to {high:.2f}; thick: 2 engines + 2 ranks, thin: one process",
        ),
        (margin, height - 12, "step 1"),
        (width - margin - 50, height - 12, f"step {steps}"),
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *(line(curves[name], 'stroke="#8a94a6" stroke-width="1"') for name in SINGLE),
            line(curves["cluster"], 'stroke="#0b6e6e" stroke-width="2.5"'),
            *(
                f'<text x="{x}" y="{y}" font-family="sans-serif" font-size="12">{w}</text>'
                for x, y, w in words
            ),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
