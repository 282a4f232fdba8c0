"""What one run of the benchmark is: settings as a user writes them, and what the harness puts in between."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trimtab.algorithms.algorithm import Algorithm
from trimtab.models import LoadedModel
from trimtab.rollout.engine import RolloutEngine
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Prompt

Part = Literal["tuning", "scored"]
"""Runs on which rules may be tuned, and runs that are only ever scored."""

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("runs") / "doctor-benchmark"
"""Where runs, models and data are kept, below the repository's root."""

STEPS = 32
"""Steps of a run. One of the other packages says nothing of runs shorter than 30."""

BASE: dict[str, Any] = {
    "run": {"steps": STEPS},
    "model": {"path": "embedded/sums"},
    "data": {"task": "sums", "train_prompts": 1024, "held_out": 32},
    "reward": {"graders": [{"name": "answer", "options": {"marker": "#"}}]},
    "sampling": {"prompts_per_step": 8, "samples_per_prompt": 8, "max_new_tokens": 56},
    "trainer": {
        "updates_per_step": 4,
        "learning_rate": 3e-4,
        "warmup_updates": 4,
        "tokens_per_micro_batch": 8192,
    },
    "evaluation": {"every": 8, "samples": 4, "ks": [1, 4]},
    "record": {"tokens": 4, "checkpoint_every": 1000},
}
"""The quickstart, a quarter as large."""


def _same_prompts(prompts: Sequence[Prompt], model: LoadedModel) -> Sequence[Prompt]:
    del model
    return prompts


def _same_trainer(trainer: LocalTrainer) -> Trainer:
    return trainer


def _same_algorithm(algorithm: Algorithm) -> Algorithm:
    return algorithm


@dataclass(frozen=True, kw_only=True)
class Injection:
    """Where a fault gets in. Every default changes nothing; run.json never shows any of it.

    prompts: the training prompts as the run uses them. engine, trainer: what drives model and optimizer.
    algorithm: what is optimised. trained_at: temperature that the trainer believes in; None: the sampler's.
    """

    prompts: Callable[[Sequence[Prompt], LoadedModel], Sequence[Prompt]] = _same_prompts
    engine: Callable[[LoadedModel], RolloutEngine] = LocalEngine
    trainer: Callable[[LocalTrainer], Trainer] = _same_trainer
    algorithm: Callable[[Algorithm], Algorithm] = _same_algorithm
    trained_at: float | None = None


NOTHING = Injection()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way of causing a fault, or one kind of healthy run.

    name: unique within its fault. settings: tables laid over ``BASE``, key by key. seeds: by part.
    """

    name: str
    settings: Mapping[str, Any]
    injection: Injection = NOTHING
    tuning: tuple[int, ...] = ()
    scored: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, under the name that the doctor should give as its cause.

    also: causes that are as right, because they name the same thing to change.
    what: one sentence for the documentation.
    """

    cause: str
    what: str
    variants: tuple[Variant, ...]
    also: frozenset[str] = frozenset()

    @property
    def accepted(self) -> frozenset[str]:
        return self.also | {self.cause}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One run to make: a variant with a seed. ``cause`` is None for a healthy one."""

    cause: str | None
    variant: Variant
    seed: int
    part: Part

    @property
    def name(self) -> str:
        return f"{self.cause or 'healthy'}--{self.variant.name}--{self.seed}"

    def settings(self) -> dict[str, Any]:
        """The whole recipe as a tree."""
        tree = laid_over(BASE, self.variant.settings)
        tree["run"] = {**tree["run"], "name": self.name, "seed": self.seed}
        tree["data"] = {**tree["data"], "seed": self.seed}
        return tree


def laid_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the tables of ``changes`` laid over it, one key at a time; a key set to None goes."""
    tree: dict[str, Any] = copy.deepcopy(dict(base))
    for table, values in changes.items():
        if table == "algorithm":
            tree[table] = {"name": values} if isinstance(values, str) else dict(values)
            continue
        merged = {**tree.get(table, {}), **values}
        tree[table] = {key: value for key, value in merged.items() if value is not None}
    return tree


def scenes_of(cause: str | None, variants: Sequence[Variant]) -> list[Scene]:
    """The runs of these variants, tuning ones first."""
    return [
        Scene(cause=cause, variant=variant, seed=seed, part=part)
        for part in ("tuning", "scored")
        for variant in variants
        for seed in getattr(variant, part)
    ]
