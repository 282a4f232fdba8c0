"""Prints the tables of docs/fsdp2.md: how far weights over ranks are from those of one process.

PYTHONPATH=src:. python scripts/sharded_differences.py
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from tests.clusters import cluster_run
from tests.ranks import spawned
from tests.sharded_cases import CASES, alone, apart, other_micro_batches, over
from tests.tiny_runs import model_folder, train_silently
from torch import Tensor

STEPS = 3
RUNS: dict[str, dict[str, Any]] = {
    "two ranks": {"cluster": {"trainers": 2}},
    "one process, micro-batches cut alike": {"trainer": {"fast": "never", "tokens_per_micro_batch": 60}},
    "one process, uncut": {"trainer": {"fast": "never"}},
    "one process, uncut, trimtab's own passes": {"trainer": {"fast": "always"}},
}


def main() -> None:
    """Both tables."""
    cases()
    with tempfile.TemporaryDirectory() as folder:
        runs(Path(folder))


def runs(folder: Path) -> None:
    """The weights of whole runs, each against each."""
    model = model_folder(folder / "model")
    found = {
        name: ended(model, folder / f"{number}", table) for number, (name, table) in enumerate(RUNS.items())
    }
    names = list(RUNS)
    print(f"\n| {STEPS} steps of a run | {' | '.join(names[:-1])} |\n|---|{'---|' * len(names[:-1])}")
    for row in names[1:]:
        cells = [f"{most(found[row], found[column]):.1e}" for column in names[: names.index(row)]]
        print(f"| {row} | {' | '.join([*cells, *[''] * (len(names) - 1 - len(cells))])} |")


def ended(model: Path, folder: Path, table: dict[str, Any]) -> dict[str, Tensor]:
    """The model that a run leaves."""
    train_silently(cluster_run(model, steps=STEPS, **{"cluster": {}, **table}), folder)
    return load_file(folder / "checkpoints" / f"step-{STEPS:06d}" / "model" / "model.safetensors")


def most(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference of a weight."""
    return max(float((tensor - right[name]).abs().max()) for name, tensor in left.items())


def cases() -> None:
    """Each case of tests/sharded_cases.py over 2 and 3 ranks, and in one process with other micro-batches."""
    print("| case | 2 ranks | 3 ranks | one process, other micro-batches |\n|---|---|---|---|")
    for name in CASES:
        differences = [apart(alone(name), over(name, spawned(size))) for size in (2, 3)]
        differences.append(other_micro_batches(name))
        print(f"| {name} | {' | '.join(f'{one:.1e}' for one in differences)} |", flush=True)


if __name__ == "__main__":
    main()
