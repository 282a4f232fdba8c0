"""The stages of a step after collection, one function each; both loops are made of them.

collect -> shape -> pack -> annotate -> advantages -> correct -> update -> sync
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.packing import pack, split_updates
from trimtab.objectives.objective import Objective
from trimtab.rewards.shaping import reward_groups
from trimtab.rollout.engine import RolloutEngine
from trimtab.trainer.faults import NotFiniteError, require_finite
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, RewardedGroup, ScoredGroup, StepReport, WeightSource


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One optimizer step: its number in the run, the batch it saw (weights included), and its report."""

    number: int
    batch: Batch
    report: StepReport


def shape(kept: Sequence[ScoredGroup], algorithm: Algorithm, max_new_tokens: int) -> list[RewardedGroup]:
    """Rewards of the kept groups: grades on the algorithm's scale, with its length part."""
    return reward_groups(kept, algorithm.reward, algorithm.shaping, max_new_tokens)


def pack_groups(groups: Sequence[RewardedGroup], algorithm: Algorithm) -> Batch:
    """The graded rollouts as one batch; overlong filtering masks the tokens of truncated ones."""
    return pack(groups, overlong_filter=algorithm.overlong_filter)


async def annotate(
    trainer: Trainer, batch: Batch, algorithm: Algorithm, *, only_update: bool = False
) -> Batch:
    """The columns the algorithm needs and only a model can fill, by the weights before any update.

    only_update: the step makes one update, whose own pass is by these weights; a pass before it for the
    old log-probabilities would be the same one twice, and is left out where the trainer offers that and
    nothing before the update reads them.
    """
    columns = algorithm.needs | {"old_logprobs_T"}
    read_before = algorithm.kl_in_reward is not None or algorithm.correction is not None
    if only_update and trainer.old_from_update and not read_before:
        columns -= {"old_logprobs_T"}
    return await trainer.annotate(batch, columns)


def advantages(batch: Batch, algorithm: Algorithm) -> Batch:
    """Advantages (and returns) of the whole step, with the KL penalty in the reward where there is one."""
    if algorithm.kl_in_reward is not None:
        batch = batch.with_columns(kl_rewards_T=algorithm.kl_in_reward(batch))
    return batch.with_columns(**algorithm.advantage(batch))


def correct(batch: Batch, algorithm: Algorithm) -> Batch:
    """The rollout correction's factor of every token of the step, where the algorithm has one."""
    return batch if algorithm.correction is None else batch.with_columns(**algorithm.correction(batch))


def checked(batch: Batch, update: int) -> Batch:
    """The batch, where all numbers that its update will use are finite. Raises NotFiniteError elsewhere."""
    try:
        require_finite(batch)
    except NotFiniteError as fault:
        raise fault.at(update, batch) from None
    return batch


def objective_of(algorithm: Algorithm, entropy_coefficient: float | None) -> Objective:
    """The algorithm's objective, with the adapted entropy coefficient where one is adapted."""
    if entropy_coefficient is None:
        return algorithm.objective
    return algorithm.objective.with_coefficient("entropy", entropy_coefficient)


async def update(
    trainer: Trainer, batch: Batch, objective: Objective, *, updates: int, epochs: int, seed: int, first: int
) -> list[Update]:
    """``updates`` x ``epochs`` optimizer steps over whole groups; numbers count on from ``first``.

    A step with fewer groups than updates cuts its groups, with fewer answers it makes fewer updates.
    """
    done: list[Update] = []
    for sequences in split_updates(batch, updates=updates, epochs=epochs, seed=seed):
        part = objective.weighted(batch.select(sequences))
        number = first + len(done)
        try:
            report = await trainer.update(part, objective)
        except NotFiniteError as fault:
            raise fault.at(number, part) from None
        if "old_logprobs_T" not in part.columns and report.trace.logprobs_T is not None:
            part = part.with_columns(old_logprobs_T=report.trace.logprobs_T)
        done.append(Update(number, part, report))
        await asyncio.sleep(0)  # an interruption from the keyboard takes effect here
    return done


async def sync(trainer: Trainer, engine: RolloutEngine) -> WeightSource:
    """Give the engine the trainer's weights, under their version. Returns the weights."""
    source, version = await trainer.publish()
    await engine.load_weights(source, version)
    return source
