"""Trainers and terms with a fault, put around or in place of the product's own."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.packing import micro_batches
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.regularizers import ReferenceKL
from trimtab.objectives.surrogate import Unclipped
from trimtab.rewards.kl import KLInReward
from trimtab.trainer.annotate import read_columns
from trimtab.trainer.forward import Asked
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, ModelOutput, StepReport, Trace, WeightSource


class Around:
    """Passes every call on; subclasses change what goes in. Columns are changed in place, as a bug would,
    so that the record shows what was trained on.
    """

    def __init__(self, inner: LocalTrainer) -> None:
        self.inner = inner
        self.version = inner.version
        self.old_from_update = False

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        return await self.inner.annotate(batch, columns)

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        return await self.inner.update(batch, objective)

    async def publish(self) -> tuple[WeightSource, int]:
        source, self.version = await self.inner.publish()
        return source, self.version

    async def save(self, path: Path) -> None:
        await self.inner.save(path)

    async def load(self, path: Path) -> None:
        await self.inner.load(path)


class OldFromNow(Around):
    """Old log-probabilities are taken anew before every update, by the weights that it starts from."""

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        config = self.inner.config
        read = read_columns(
            self.inner.reader, batch, Asked(), config.tokens_per_micro_batch, logprobs="old_logprobs_T"
        )
        batch.old_logprobs_T.copy_(read["old_logprobs_T"])
        return await super().update(batch, objective)


class MeanOfMeans(Around):
    """Each micro-batch is averaged by itself, and the averages are averaged."""

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        parts = micro_batches(batch, self.inner.config.tokens_per_micro_batch)
        weights_T = torch.zeros_like(batch.weights_T)
        for part in parts:
            chosen_T = torch.isin(batch.seq_T, torch.tensor(part))
            in_order = sorted(part)
            weights_T[chosen_T] = objective.aggregate(batch.select(in_order)) / len(parts)
        batch.weights_T.copy_(weights_T)
        return await super().update(batch, objective)


class EndLeftOut(Around):
    """The trainer masks end tokens, which the sampler did not."""

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        stops = torch.tensor(self.inner.model.stop_ids)
        batch.mask_T.logical_and_(~torch.isin(batch.token_ids_T, stops))
        return await super().annotate(batch, columns)


def frozen_critic(trainer: LocalTrainer) -> Trainer:
    """The critic's gradients are thrown away, as where its parameters never reached the optimizer."""
    for owned in trainer.owners:
        if owned.name == "critic":
            for parameter in owned.parameters.values():
                parameter.requires_grad_(False)
    return trainer


@dataclass(frozen=True)
class Flipped:
    """A reference KL that is earned instead of paid."""

    inner: ReferenceKL

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        loss_T, trace = self.inner(out, batch)
        return -loss_T, trace


@dataclass(frozen=True)
class FlippedInReward:
    """A KL in the reward with the wrong sign."""

    inner: KLInReward

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    def __call__(self, batch: Batch) -> Tensor:
        return -self.inner(batch)

    def __str__(self) -> str:
        return str(self.inner)


def flip_kl(algorithm: Algorithm) -> Algorithm:
    """Every KL term of the loss or of the reward with its sign turned round."""
    terms = tuple(
        (coefficient, Flipped(term) if isinstance(term, ReferenceKL) else term)
        for coefficient, term in algorithm.objective.terms
    )
    in_reward: Any = algorithm.kl_in_reward and FlippedInReward(algorithm.kl_in_reward)
    return dataclasses.replace(
        algorithm, objective=dataclasses.replace(algorithm.objective, terms=terms), kl_in_reward=in_reward
    )


def negative_kl(algorithm: Algorithm) -> Algorithm:
    """The KL term of the loss with a negative coefficient."""
    terms = tuple(
        (-coefficient if term.name == "kl" else coefficient, term)
        for coefficient, term in algorithm.objective.terms
    )
    return dataclasses.replace(algorithm, objective=dataclasses.replace(algorithm.objective, terms=terms))


def without_clip(algorithm: Algorithm) -> Algorithm:
    """The recipe asks for a trust region; the code has none."""
    terms = tuple(
        (coefficient, dataclasses.replace(term, surrogate=Unclipped()))
        if isinstance(term, PolicyGradient)
        else (coefficient, term)
        for coefficient, term in algorithm.objective.terms
    )
    return dataclasses.replace(algorithm, objective=dataclasses.replace(algorithm.objective, terms=terms))
