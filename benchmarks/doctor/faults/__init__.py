"""The faults, each with the ways in which it is caused; which runs tune rules and which are only scored.

Declared before any rule was tuned: of a fault's first variant one seed is for tuning, everything else is
scored, and of ``SCORED_ONLY`` nothing at all is for tuning.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from benchmarks.doctor.faults.rewards import DATA, REWARDS
from benchmarks.doctor.faults.sampling import SAMPLING
from benchmarks.doctor.faults.training import TRAINING
from benchmarks.doctor.scene import Fault, Scene, scenes_of

FAULTS: tuple[Fault, ...] = (*TRAINING, *SAMPLING, *REWARDS, *DATA)
SCORED_ONLY = frozenset(f.cause for f in FAULTS if not any(v.tuning for v in f.variants))


def fault_scenes() -> list[Scene]:
    """Every faulty run of the benchmark."""
    return [scene for fault in FAULTS for scene in scenes_of(fault.cause, fault.variants)]
