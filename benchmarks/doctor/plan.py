"""All runs of the benchmark, and the choice of some of them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from benchmarks.doctor.faults import fault_scenes
from benchmarks.doctor.healthy import healthy_scenes
from benchmarks.doctor.scene import Scene


def all_scenes() -> list[Scene]:
    """Faulty runs first, each kind's tuning runs before its scored ones."""
    return [*fault_scenes(), *healthy_scenes()]


def chosen(patterns: Sequence[str], part: str = "all") -> list[Scene]:
    """The scenes whose name fits one of the patterns (``*`` and ``?``, or a beginning); none means all."""
    return [
        scene
        for scene in all_scenes()
        if part in ("all", scene.part)
        and (not patterns or any(fnmatch.fnmatch(scene.name, f"{p}*") for p in patterns))
    ]
