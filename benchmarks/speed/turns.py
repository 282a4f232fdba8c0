"""Two training loops take turns, a step each, so that both meet the same weather of a machine.

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "@step "
ROOT = Path(__file__).parents[2]


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
    """One training loop: a module of this package, its scene and options, and the steps it has made."""

    name: str
    module: str
    scene: str
    options: Mapping[str, Any]
    python: str = sys.executable
    steps: list[dict[str, Any]] = field(default_factory=list)

    def start(self, log: Path) -> None:
        """Start the process; it gets ready while it waits for its first turn."""
        self.log = log
        self.process = subprocess.Popen(
            [self.python, "-m", self.module, self.scene, json.dumps(dict(self.options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(self.options["threads"]),
                "TOKENIZERS_PARALLELISM": "false",
            },
        )

    def turn(self, keep: bool) -> dict[str, Any]:
        """One step; ``keep`` counts it. Raises SideFailedError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(MARK):
                numbers: dict[str, Any] = json.loads(line.removeprefix(MARK))
                if keep:
                    self.steps.append(numbers)
                return numbers
        raise SideFailedError(f"{self.name} ended:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
