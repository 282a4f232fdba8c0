"""Trainers under contract, and short ways to call one. A trainer joins by an entry in ``TRAINERS``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import torch

from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.models import LoadedModel
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.value import ClippedValueLoss
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, StepReport

TEMPERATURE = 0.6
OLD = frozenset({"old_logprobs_T"})

TRAINERS: dict[str, Callable[..., Any]] = {"local": LocalTrainer}


def annotate(trainer: Trainer, batch: Batch, columns: frozenset[str] = OLD) -> Batch:
    return asyncio.run(trainer.annotate(batch, columns))


def update(trainer: Trainer, batch: Batch, objective: Objective = POLICY) -> StepReport:
    return asyncio.run(trainer.update(batch, objective))


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    source, _ = asyncio.run(trainer.publish())
    return {name: tensor.clone() for name, tensor in source}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def batch_for(model: LoadedModel, **shape: Any) -> Batch:
    return with_advantages(ragged_batch(model.vocab_size, **shape))


def kept_gradients(trainer: Any, batch: Batch, objective: Objective) -> dict[str, torch.Tensor]:
    """The gradients just before the optimizer step, caught where the step would use them."""
    caught: dict[str, torch.Tensor] = {}

    def catch(*_: Any, **__: Any) -> None:
        for owned in trainer.owners:
            caught.update({f"{owned.name}/{n}": g.clone() for n, g in owned.gradients().items()})

    trainer.optimizer.adamw.register_step_pre_hook(catch)
    assert update(trainer, batch, objective).applied
    return caught


def with_returns(batch: Batch, value: float) -> Batch:
    return batch.with_columns(returns_T=torch.full((batch.num_tokens,), value, dtype=torch.float64))


VALUE = Objective(((1.0, ClippedValueLoss(None)),), token_mean)
BOTH = Objective((*POLICY.terms, (0.5, ClippedValueLoss(None))), token_mean)
VALUES = frozenset({"old_logprobs_T", "values_T"})
