"""TRL's side: its ``GRPOTrainer`` with the loss ``dapo``, one update a rollout step and no KL."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from benchmarks.speed import process
from benchmarks.speed.scenes import Scene, questions
from benchmarks.speed.turns import answer, wait_for_turn
from benchmarks.speed.useful import alternating, ends_in
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Watched(GRPOTrainer):
    """The trainer as it is, with a clock around two of its methods."""

    memory = False

    def begin(self) -> None:
        self.seen: dict[str, Any] = {"lengths": [], "prompt_lengths": []}
        self.stages = {"sample": 0.0, "grade": 0.0}

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.stages["sample"] += time.perf_counter() - began
        self.seen["lengths"] += [len(ids) for ids in found[0]]
        self.seen["prompt_lengths"] += [len(ids) for ids in prompt_ids[:: self.num_generations]]
        return found

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = super()._calculate_rewards(*args, **kwargs)
        self.stages["grade"] += time.perf_counter() - began
        if self.memory:
            self.seen["update_start_bytes"] = process.forget_peak()
        return found


class Turns(TrainerCallback):
    """Waits before each step and gives its numbers back after it."""

    trainer: Watched

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.begin()
        wait_for_turn()
        self.processor = process.processor_seconds()
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        seconds, stages = time.perf_counter() - self.began, self.trainer.stages
        stages["update"] = seconds - sum(stages.values())
        peak = process.peak_bytes()
        answer(
            {
                "seconds": seconds,
                "tokens": sum(self.trainer.seen["lengths"]),
                "stages": stages,
                "peak_bytes": peak,
                "update_peak_bytes": peak,
                "processor_seconds": process.processor_seconds() - self.processor,
                **self.trainer.seen,
            }
        )


def every_other(completions: list[str], **kwargs: Any) -> list[float]:
    """The reward of ``useful.every_other``: groups stand together in TRL's batches."""
    return [alternating(i) for i in range(len(completions))]


def right_sum(completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    """The reward of ``useful.right_sum``."""
    return [ends_in(text, gold) for text, gold in zip(completions, answer, strict=True)]


def config_of(scene: Scene, options: dict[str, Any], folder: str) -> GRPOConfig:
    """The trainer's settings; what ``options`` does not say is chosen for speed.

    ``dtype``, ``attention``: of the model. ``autocast``. ``halves``: answers are sampled in two batches.
    Everything else is a field of ``GRPOConfig``.
    """
    model = {"dtype": options.pop("dtype", "float32")}
    if "attention" in options:
        model["attn_implementation"] = options.pop("attention")
    batch = options.pop("per_device_train_batch_size", scene.rollouts)
    if options.pop("halves", False):
        options["steps_per_generation"] = scene.rollouts // batch // 2
    settings = {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": options.pop("autocast", False),
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": scene.rollouts // batch,
        "num_generations": scene.samples,
        "max_completion_length": scene.limit,
        "loss_type": "dapo",
        "beta": 0.0,
        "num_iterations": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": 1e-6,
        "max_steps": 1000,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "shuffle_dataset": False,
        "model_init_kwargs": model,
    }
    return GRPOConfig(**(settings | options))


def main() -> None:
    """Train until no turn comes any more."""
    scene, options = Scene(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    torch.set_num_threads(int(options.pop("threads")))
    Watched.memory = options.pop("memory", False)
    turns = Turns()
    with tempfile.TemporaryDirectory() as folder:
        turns.trainer = Watched(
            model=scene.model,
            reward_funcs=every_other if scene.forced else right_sum,
            args=config_of(scene, options, folder),
            train_dataset=Dataset.from_list([row._asdict() for row in questions(scene, 40 * scene.prompts)]),
            processing_class=AutoTokenizer.from_pretrained(scene.model, padding_side="left"),
            callbacks=[turns],
        )
        turns.trainer.train()


if __name__ == "__main__":
    main()
