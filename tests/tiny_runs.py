"""Whole runs on a random tiny model that take a second or two, for tests of the loop."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import tiny_model
from trimtab.config import Run, run_from_dict
from trimtab.launch import train
from trimtab.models import export_model

GRADER = f"{Path(__file__).with_name('tiny_grader.py')}:starts_with_digit"


class SilentView:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[Mapping[str, float]] = []
        self.evaluations: list[tuple[str, Mapping[str, Any]]] = []
        self.messages: list[str] = []
        self.verdicts: list[str] = []

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None:
        self.evaluations.append((label, result))

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self.steps.append(values)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def verdict(self, text: str, found: Sequence[object]) -> None:
        self.verdicts.append(text)

    def finish(self, summary: Mapping[str, Any]) -> None:
        pass


def model_folder(folder: Path, **changes: Any) -> Path:
    """A random tiny model on disk."""
    model = tiny_model(**changes)
    export_model(model.module, model.tokenizer, folder)
    return folder


def tiny_run(model: Path, algorithm: str | Mapping[str, Any] = "grpo", **sections: Mapping[str, Any]) -> Run:
    """A run of few small steps; ``sections`` are laid over its tables, key by key."""
    table = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    tree: dict[str, dict[str, Any]] = {
        "run": {"steps": 4, "seed": 3},
        "model": {"path": str(model)},
        "data": {"task": "sums", "held_out": 6, "train_prompts": 40},
        "reward": {"graders": [{"name": GRADER}], "truncated": "grade"},
        "sampling": {"prompts_per_step": 4, "samples_per_prompt": 4, "max_new_tokens": 12},
        "trainer": {"updates_per_step": 2, "learning_rate": 2e-3, "critic_warmup_updates": 1},
        "evaluation": {"samples": 2, "ks": [1, 2]},
        "record": {"checkpoint_every": 1, "tokens": "all"},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return run_from_dict({**tree, "algorithm": table})


def train_silently(run: Run, folder: Path, *, resume: bool = False) -> tuple[dict[str, Any], SilentView]:
    view = SilentView()
    return train(run, folder=folder, view=view, resume=resume), view
