"""The other diagnosis packages, each fed through its own input format: rldoctor, rlprobe, rlwatch."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from benchmarks.doctor.peers.alarms import Alarm
from benchmarks.doctor.peers.rldoctor import rldoctor_alarms
from benchmarks.doctor.peers.rlprobe import rlprobe_alarms
from benchmarks.doctor.peers.rlwatch import rlwatch_alarms

from trimtab.record.reader import RunReader

Ask = Callable[[RunReader, Path], list[Alarm]]
"""A run and an empty folder for the package's own files -> everything that the package says of the run."""

PEERS: dict[str, tuple[str, Ask]] = {
    "rldoctor": ("rl_doctor", rldoctor_alarms),
    "rlprobe": ("rlprobe", rlprobe_alarms),
    "rlwatch": ("rlwatch", rlwatch_alarms),
}
"""By name: the module that must be there, and how to ask."""


def installed() -> dict[str, Ask]:
    """The packages that can be asked here; ``pip install 'trimtab[peers]'`` brings them."""
    return {name: ask for name, (module, ask) in PEERS.items() if importlib.util.find_spec(module)}
