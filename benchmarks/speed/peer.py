"""TRL's side: its ``GRPOTrainer`` with the loss ``dapo``, one update a rollout step and no KL."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from typing import Any

import torch
from benchmarks.speed.scenes import Scene, questions
from benchmarks.speed.turns import answer, wait_for_turn
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Turns(TrainerCallback):
    """Waits before each step; gives its seconds back when the log of the step is there."""

    def __init__(self) -> None:
        self.began = 0.0
        self.seconds = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        wait_for_turn()
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds = time.perf_counter() - self.began

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if "completions/mean_length" not in logs:
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        tokens = logs["completions/mean_length"] * args.generation_batch_size
        answer({"seconds": self.seconds, "tokens": tokens, "peak_bytes": peak, "stages": {}})


def every_other(completions: list[str], **kwargs: Any) -> list[float]:
    """The reward of ``useful.every_other``: groups stand together in TRL's batches."""
    return [float(i % 2 == 0) for i in range(len(completions))]


def main() -> None:
    """Train until no turn comes any more."""
    scene, options = Scene(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    torch.set_num_threads(int(options.pop("threads")))
    rollouts = scene.prompts * scene.samples
    dtype = options.pop("dtype", "float32")
    batch = options.pop("per_device_train_batch_size", rollouts)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=options.pop("autocast", False),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=rollouts // batch,
            num_generations=scene.samples,
            max_completion_length=scene.limit,
            loss_type="dapo",
            beta=0.0,
            num_iterations=1,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            learning_rate=1e-6,
            max_steps=1000,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            gradient_checkpointing=False,
            model_init_kwargs={"dtype": dtype},
            **options,
        )
        trainer = GRPOTrainer(
            model=scene.model,
            reward_funcs=every_other,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": q} for q in questions(40 * scene.prompts)]),
            processing_class=AutoTokenizer.from_pretrained(scene.model, padding_side="left"),
            callbacks=[Turns()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
