"""What a run says before it spends anything, and what it is known by in run.json."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from trimtab.config import Run, opening_lines
from trimtab.data.prompts import PromptSet
from trimtab.launch.plant import Plant
from trimtab.launch.prompts import problem_lines
from trimtab.models import LoadedModel
from trimtab.rewards.grader import Unverifiable
from trimtab.rollout.local import effective_sampler
from trimtab.trainer.checkpoint import Checkpoint


@runtime_checkable
class Describing(Protocol):
    """Every trainer says what it optimises."""

    def describe(self) -> str: ...


def lines_of(
    run: Run,
    plant: Plant,
    prompts: PromptSet,
    problems: Sequence[Unverifiable],
    checkpoint: Checkpoint | None,
) -> list[str]:
    """The model, the sampler, who runs where, what is optimised, the data, and what was resumed."""
    model = plant.model
    millions = sum(p.numel() for p in model.module.parameters()) / 1e6
    where = "" if model.device.type == "meta" else f", {model.device}"
    lines = [
        f"model: {run.model.path}, {millions:.2f} M parameters, {model.dtype}{where}",
        f"sampler: {effective_sampler(model, run.sampling.sampler())}",
        *_evaluation_sampler(run, model),
        *plant.lines,
        *_trainer_lines(plant),
        *opening_lines(run),
        *prompts.lines(),
        *problem_lines(problems, prompts),
    ]
    if checkpoint is not None:
        lines.append(f"resumed from {checkpoint.path.name}")
        lines += [f"passed over a damaged checkpoint, {fault}" for fault in checkpoint.passed_over]
    return lines


def _trainer_lines(plant: Plant) -> list[str]:
    trainer = plant.trainer
    return trainer.describe().splitlines() if isinstance(trainer, Describing) else []


def _evaluation_sampler(run: Run, model: LoadedModel) -> list[str]:
    """The evaluation's sampler, where it is another one than that of training."""
    own = run.evaluation_sampler()
    if run.data.held_out == 0 or own == run.sampling.sampler():
        return []
    return [f"evaluation sampler: {effective_sampler(model, own)}"]
