"""What of a run decides its trainer, or its engine's size, whichever kind is built and wherever."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import torch

from trimtab.config.run import Run
from trimtab.models import choose_device, choose_dtype


def trainer_arguments(run: Run) -> dict[str, Any]:
    """The arguments of a trainer beside the model and its reference."""
    critic = "values_T" in run.build_algorithm().needs
    updates = run.run.steps * run.trainer.updates_per_step * run.trainer.epochs
    return {
        "temperature": run.sampling.temperature,
        "config": run.trainer,
        "critic": critic,
        "seed": run.run.seed,
        "total_updates": updates - (run.trainer.critic_warmup_updates if critic else 0),
        "exact_sampler": run.exact_sampler,
        "lora": run.model.lora,
    }


def trainer_dtype(run: Run) -> torch.dtype:
    """What this run's trainer computes log-probabilities in."""
    if run.trainer.autocast:
        return torch.bfloat16
    return choose_dtype(run.model.dtype, choose_device(run.model.device))


def reference_path(run: Run) -> str | None:
    """The model of the KL terms that must be loaded; None where the algorithm compares with none, or with the
    base of the policy's own adapters.
    """
    if "ref_logprobs_T" not in run.build_algorithm().needs:
        return None
    if run.model.lora is not None and run.model.reference is None:
        return None
    return run.model.reference or run.model.path


def vllm_length(run: Run) -> int | None:
    """Tokens of prompt and answer for which a vLLM engine of this run has room; None: the model's context."""
    if run.cluster.vllm.max_model_len:
        return run.cluster.vllm.max_model_len
    prompt = run.data.max_prompt_tokens
    return None if prompt is None else prompt + run.longest_answer
