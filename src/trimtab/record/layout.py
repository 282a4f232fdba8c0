"""Where everything lies in a run directory, and how a file gets there whole or not at all."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SCHEMA_VERSION = 1
"""Raised when a reader of the older version would misread a file; see docs/record.md."""

PART = ".part"
"""Suffix of what is being written and does not count yet."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run. Creates nothing."""

    path: Path

    @property
    def run(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def distributions(self) -> Path:
        return self.path / "distributions.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def findings(self) -> Path:
        return self.path / "findings.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def tokenizer(self) -> Path:
        return self.path / "tokenizer"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations"

    @property
    def nonfinite(self) -> Path:
        return self.path / "nonfinite"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def rollouts_of(self, step: int) -> Path:
        return self.rollouts / f"{step:06d}.parquet"

    def checkpoint_of(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def rollout_steps(self) -> list[int]:
        """Steps that have a rollouts file, ascending."""
        return sorted(int(p.stem) for p in self.rollouts.glob("*.parquet") if p.stem.isdigit())

    def checkpoint_steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        names = (re.fullmatch(r"step-(\d+)", p.name) for p in self.checkpoints.glob("step-*") if p.is_dir())
        return sorted(int(found[1]) for found in names if found)

    def clean(self) -> None:
        """Remove what a killed writer left unfinished."""
        for folder in (self.path, self.rollouts, self.checkpoints, self.nonfinite):
            for leftover in folder.glob(f".*{PART}"):
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a hidden file beside ``path``, then rename it: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}{PART}")
    write(aside)
    os.replace(aside, path)
