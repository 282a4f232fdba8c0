"""What of a run decides its trainer, whichever kind is built and wherever."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from trimtab.config.run import Run


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
    }


def reference_path(run: Run) -> str | None:
    """The model of the KL terms; None where the algorithm compares with none."""
    if "ref_logprobs_T" not in run.build_algorithm().needs:
        return None
    return run.model.reference or run.model.path
