"""Every algorithm on the embedded default, same steps and sizes, several seeds: one resumable command.

    python benchmarks/algorithms.py --out runs/algorithms            all of them, 3 seeds
    python benchmarks/algorithms.py --only grpo gspo --seeds 1 --table docs/algorithms.md

A run that is finished is not run again; one that was interrupted goes on where it stopped. The table is made
from the runs' own records. With --jobs 2 two runs share the machine, one thread each.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

from trimtab.algorithms import ALGORITHMS
from trimtab.record.reader import RunReader

EXTRA: dict[str, tuple[str, ...]] = {
    "ppo": ("trainer.critic_learning_rate=1e-3", "trainer.critic_warmup_updates=20"),
}
"""Settings beside the algorithm's name, where the recipe's defaults are made for large models."""

LAST_STEPS = 10


def run_one(name: str, seed: int, out: Path, overrides: Sequence[str], threads: int) -> Path:
    """Train one run to its end, or go on with it; its folder."""
    folder = out / f"{name}-{seed}"
    if (folder / "summary.json").exists():
        return folder
    command = [
        sys.executable,
        "-m",
        "trimtab",
        "train",
        "quickstart",
        f"algorithm.name={name}",
        f"run.seed={seed}",
    ]
    command += [*EXTRA.get(name, ()), *overrides, "--out", str(folder), "--resume", "--plain"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            command, stdout=log, stderr=log, check=False, env={**os.environ, "OMP_NUM_THREADS": str(threads)}
        )
    if done.returncode:
        print(
            f"{folder.name}: stopped with exit code {done.returncode}, see {folder / 'log.txt'}",
            file=sys.stderr,
        )
    return folder


def row(name: str, folders: Sequence[Path]) -> str:
    """One line of the table: means over seeds, with the standard deviation where there are several."""
    readers = [RunReader(folder) for folder in folders if (folder / "summary.json").exists()]
    if not readers:
        return f"| {name} | no finished run | | | | | | |"
    summaries = [json.loads((reader.folder.summary).read_text(encoding="utf-8")) for reader in readers]
    final = [summary["evaluation"]["final"] for summary in summaries]
    start = [summary["evaluation"]["start"]["pass@1"] for summary in summaries]
    entropy = [reader.history.series("policy/entropy").values[-LAST_STEPS:].mean() for reader in readers]
    rollouts = [reader.history.series("flow/rollouts").values.sum() for reader in readers]
    cells = (
        spread([f["pass@1"] for f in final], 3),
        spread([f["pass@8"] for f in final], 3),
        spread([float(e) for e in entropy], 3),
        spread([f["mean_length"] for f in final], 1),
        f"{mean(rollouts):.0f}",
        f"{mean(summary['seconds']['train'] for summary in summaries):.0f}",
    )
    return f"| {name} | {len(readers)} | {mean(start):.3f} | " + " | ".join(cells) + " |"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation over seeds."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def table(names: Sequence[str], seeds: int, out: Path) -> str:
    """The whole table as Markdown."""
    head = "| algorithm | seeds | start pass@1 | pass@1 | pass@8 | entropy | length | rollouts | seconds |"
    rule = "|" + "---|" * 9
    rows = [row(name, [out / f"{name}-{seed}" for seed in range(seeds)]) for name in names]
    return "\n".join([head, rule, *rows]) + "\n"


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--only", nargs="+", choices=sorted(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time; each gets its share of the cores"
    )
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", metavar="A.B=C")
    parser.add_argument("--table", type=Path, help="write the table there as well")
    args = parser.parse_args()
    threads = max(1, len(os.sched_getaffinity(0)) // args.jobs)
    jobs = [(name, seed) for seed in range(args.seeds) for name in args.only]
    with ThreadPoolExecutor(args.jobs) as pool:
        for folder in pool.map(lambda job: run_one(*job, args.out, args.overrides, threads), jobs):
            print(f"{folder.name} done", flush=True)
    text = table(args.only, args.seeds, args.out)
    print(text)
    if args.table:
        args.table.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
