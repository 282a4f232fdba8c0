"""Training loops take turns, a step each, so that all meet the same weather of a machine.

A loop runs in a process of its own. It waits for a line on standard input before each step and writes one
line with its numbers after it; everything else it prints goes to standard error.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "@step "
ROOT = Path(__file__).parents[2]
Numbers = dict[str, Any]
"""Of a step: ``seconds``, ``tokens``, ``lengths`` and ``prompt_lengths`` (one a rollout and one a group),
``stages`` (seconds), ``peak_bytes``, ``processor_seconds``; with ``memory`` also ``update_peak_bytes`` and
``update_start_bytes``."""


def wait_for_turn() -> None:
    """In a loop's process: until the other side's line comes; without one the process ends."""
    if not sys.stdin.readline():
        os._exit(0)


def answer(numbers: Mapping[str, Any]) -> None:
    """In a loop's process: the numbers of the step just made."""
    print(MARK + json.dumps(numbers), flush=True)


class SideFailedError(RuntimeError):
    """A loop's process ended, with the end of what it said."""


@dataclass
class Side:
    """One training loop: a module of this package, its scene and options, and the steps it has made.

    options: what the module takes, ``threads`` among it. environment: variables beside the usual ones.
    """

    name: str
    module: str
    scene: str
    options: Mapping[str, Any]
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: list[Numbers] = field(default_factory=list)

    def start(self, folder: Path) -> None:
        """Start the process; it gets ready while it waits for its first turn."""
        self.log = folder / f"{self.name.replace(' ', '-')}.log"
        sources = os.pathsep.join([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self.process = subprocess.Popen(
            [self.python, "-m", self.module, self.scene, json.dumps(dict(self.options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": sources,
                "OMP_NUM_THREADS": str(self.options["threads"]),
                "TOKENIZERS_PARALLELISM": "false",
                **self.environment,
            },
        )

    def turn(self, keep: bool) -> Numbers:
        """One step; ``keep`` counts it. Raises SideFailedError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(MARK):
                numbers: Numbers = json.loads(line.removeprefix(MARK))
                if keep:
                    self.steps.append(numbers)
                return numbers
        raise SideFailedError(f"{self.name} ended:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def alternate(sides: Sequence[Side], *, rounds: int, warm_up: int, folder: Path) -> None:
    """Start all sides; a step each in turn, back and forth; the first ``warm_up`` rounds do not count."""
    try:
        for side in sides:
            side.start(folder)
        for turn in range(warm_up + rounds):
            for side in sides if turn % 2 else reversed(sides):
                numbers = side.turn(keep=turn >= warm_up)
                print(f"{side.name}: {numbers['seconds']:.2f} s", file=sys.stderr)
    finally:
        for side in sides:
            if hasattr(side, "process"):
                side.stop()
