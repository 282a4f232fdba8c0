"""Trainers under contract, and short ways to call one. A trainer joins by an entry in ``TRAINERS``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tests.ranks import OverRanks
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

RAY = "ray over 2"
"""The kind whose ranks are actors; tests/ray_trainers.py, which needs the package ray."""

TRAINERS: dict[str, Callable[..., Any]] = {
    "local": LocalTrainer,
    "sharded over 1": OverRanks(1),
    "sharded over 2": OverRanks(2),
}


def is_spread(trainer: Any) -> bool:
    """Whether its weights live in ranks, so that what is not in the protocol is asked for inside of them."""
    return hasattr(trainer, "inside")


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
    if is_spread(trainer):
        applied, gradients = trainer.inside("kept_gradients", batch, objective)
        assert applied
        return gradients
    caught: dict[str, torch.Tensor] = {}

    def catch(*_: Any, **__: Any) -> None:
        for owned in trainer.owners:
            caught.update({f"{owned.name}/{n}": g.clone() for n, g in owned.gradients().items()})

    trainer.optimizer.adamw.register_step_pre_hook(catch)
    assert update(trainer, batch, objective).applied
    return caught


def masters(trainer: Any) -> dict[str, dict[str, torch.Tensor]]:
    """All weights of every owner, as they are optimised."""
    if is_spread(trainer):
        return trainer.inside("state")[1]
    return {owned.name: owned.everything() for owned in trainer.owners}


def moments(trainer: Any) -> dict[str, torch.Tensor]:
    """The optimizer's state of every weight."""
    return trainer.inside("state")[2] if is_spread(trainer) else trainer.optimizer.moments()


def held_by(trainer: Any) -> LoadedModel:
    """A model with the trainer's weights, to be read the plain way."""
    if not is_spread(trainer):
        return trainer.model
    module = copy.deepcopy(trainer.model.module)
    module.load_state_dict(weights(trainer), strict=False)
    return dataclasses.replace(trainer.model, module=module)


def poison(trainer: Any, name: str, index: tuple[int, ...], value: float = torch.nan) -> None:
    """Set one number of a weight of the policy."""
    if is_spread(trainer):
        trainer.inside("poison", name, index, value)
        return
    with torch.no_grad():
        dict(trainer.model.module.named_parameters())[name][index] = value


def freeze(trainer: Any) -> None:
    """No weight of the policy requires a gradient any more."""
    if is_spread(trainer):
        trainer.inside("freeze")
    else:
        trainer.model.module.requires_grad_(False)


def to_training(trainer: Any) -> None:
    """The policy's module is switched to training mode, from outside."""
    if is_spread(trainer):
        trainer.inside("to_training")
    else:
        trainer.model.module.train()


def modes_of_layers(trainer: Any, batch: Batch) -> tuple[list[bool], list[bool]]:
    """In which mode layers run in an update, and in which they are left."""
    if is_spread(trainer):
        return trainer.inside("modes_of_layers", batch, POLICY)
    modes: list[bool] = []
    layers = trainer.model.module.model.layers
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, _: modes.append(layer.training))
    assert update(trainer, batch).applied
    return modes, [layer.training or layer.gradient_checkpointing for layer in layers]


def drawn(trainer: Any, count: int) -> torch.Tensor:
    """Numbers of torch's generator where the trainer computes."""
    if is_spread(trainer):
        return torch.cat(trainer.draw(count))
    return torch.rand(count)


def with_returns(batch: Batch, value: float) -> Batch:
    return batch.with_columns(returns_T=torch.full((batch.num_tokens,), value, dtype=torch.float64))


VALUE = Objective(((1.0, ClippedValueLoss(None)),), token_mean)
BOTH = Objective((*POLICY.terms, (0.5, ClippedValueLoss(None))), token_mean)
VALUES = frozenset({"old_logprobs_T", "values_T"})
