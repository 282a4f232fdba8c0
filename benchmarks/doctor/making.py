"""Making many runs at a time. Not in ``__main__``, whose functions the processes it starts do not know."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.doctor.plan import chosen
from benchmarks.doctor.runs import Made, made, make
from benchmarks.doctor.scene import Scene
from benchmarks.doctor.toys import make_toys


def make_all(scenes: Sequence[Scene], root: Path, jobs: int) -> None:
    """Make what is missing, ``jobs`` at a time, each in a process of its own."""
    missing = [scene for scene in scenes if made(scene, root) is None]
    if not missing:
        return
    make_toys(root)
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tasks = [pool.submit(_make, scene.name, root) for scene in missing]
        for number, task in enumerate(concurrent.futures.as_completed(tasks), start=1):
            done = task.result()
            end = f", ended early: {done.fault[:100]}" if done.fault else ""
            sys.stderr.write(f"{number}/{len(missing)} {done.name} in {done.seconds:.0f} s{end}\n")


def _make(name: str, root: Path) -> Made:
    """By name, since a scene holds functions that cannot travel between processes."""
    return make(next(scene for scene in chosen([name]) if scene.name == name), root)
