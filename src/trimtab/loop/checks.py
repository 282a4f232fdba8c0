"""Self-checks of a process's first steps: do sampler and trainer speak of the same policy?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from trimtab.data.packing import pack
from trimtab.loop.collected import Collected, Wanted
from trimtab.loop.observe import Step, untouched
from trimtab.loop.stages import Update
from trimtab.loop.view import View
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.rollout.checks import (
    CheckResult,
    check_alone,
    check_ratio,
    check_weights_arrived,
    check_weights_changed,
    fingerprint,
)
from trimtab.rollout.engine import RolloutEngine
from trimtab.trainer.trainer import Trainer
from trimtab.types import Draw, Grade, RewardedGroup, Rollout, ScoredGroup, WeightSource

SAMPLED_ALONE = 4
"""Rollouts that are sampled again alone, each of another group."""

PROBED_TOKENS = 32
"""Length at most of the answers that are sampled only to be compared."""


class SelfChecks:
    """Four checks, each made once in a process (so a resumed run makes them again), each at the first
    step that allows it: some rollouts sampled alone; the ratio before any update; whether an update
    changed the weights; the ratio again after those were delivered to the engine. Each is told.

    dtype: what the trainer computes in, whatever the dtype of the engine.
    """

    def __init__(self, engine: RolloutEngine, record: RunRecord, view: View, *, dtype: torch.dtype) -> None:
        self._engine = engine
        # sampler against trainer is held to what the less precise of the two can give
        self._dtype = dtype if engine.dtype is torch.float32 else engine.dtype
        self._record = record
        self._view = view
        self._alone_done = False
        self._changed_done = engine.dtype is not torch.float32
        self._delivery_done = False
        self._published = ""
        """Fingerprint of the weights published last."""
        self._compared: int | None = None
        """Version whose ratio was found to be 1; None before."""

    async def sampled(self, step: int, found: Collected, wanted: Wanted) -> None:
        """A rollout of each of the first groups, sampled again alone: the same tokens and log-probabilities.

        Raises RunError with the likely causes when they differ.
        """
        if self._alone_done or not found.fresh:
            return
        self._alone_done = True
        pairs: list[tuple[Rollout, Rollout]] = []
        for together in (scored.group for scored in found.fresh[:SAMPLED_ALONE]):
            async for alone in self._engine.generate([together.draw], 1, wanted.sampling, seed=wanted.seed):
                pairs.append((alone.rollouts[0], together.rollouts[0]))
        self._keep(step, check_alone(pairs, dtype=self._engine.dtype))

    def trained(self, step: Step) -> None:
        """Sampler against trainer on the tokens just sampled: first on weights that nothing has touched,
        then on weights that were updated and delivered. A step on which nothing can be compared leaves
        the check to the next one. Raises RunError with the likely causes when the ratio is not 1.
        """
        if self._delivery_done or step.version == self._compared:
            return
        batch = untouched(step.updates)
        if batch is None:
            return
        fresh_T = batch.mask_T & (batch.version_S == step.version)[batch.seq_T]
        if not bool(fresh_T.any()):
            return
        self._delivery_done = self._compared is not None
        check = check_weights_arrived if self._delivery_done else check_ratio
        self._compared = step.version
        sampler_T, trainer_T = batch.rollout_logprobs_T[fresh_T], batch.old_logprobs_T[fresh_T]
        self._keep(step.number, check(sampler_T, trainer_T, dtype=self._dtype))

    async def delivered(self, step: int, trainer: Trainer, draws: Sequence[Draw], wanted: Wanted) -> None:
        """As the second check of ``trained``, for loops whose steps never train on what the newest weights
        have sampled: right after these were delivered, a few short answers of their own.

        Raises RunError with the likely causes when the ratio is not 1. Where the trainer takes the sampler's
        word for the old log-probabilities there is nothing to compare.
        """
        if self._delivery_done or self._engine.version == self._compared or not draws:
            return
        sampling = replace(wanted.sampling, max_new_tokens=min(PROBED_TOKENS, wanted.sampling.max_new_tokens))
        chosen = {draw.prompt.id: draw for draw in draws}
        rewarded: list[RewardedGroup] = []
        asked = list(chosen.values())[:SAMPLED_ALONE]
        async for group in self._engine.generate(asked, 1, sampling, seed=wanted.seed, purpose="probe"):
            scored = ScoredGroup(group=group, grades=(Grade.of(0.0),))
            rewarded.append(RewardedGroup(scored=scored, rewards=np.zeros(1), shaping=np.zeros(1)))
        batch = await trainer.annotate(pack(rewarded), frozenset({"old_logprobs_T"}))
        sampler_T, trainer_T = batch.rollout_logprobs_T, batch.old_logprobs_T
        if not len(sampler_T) or torch.equal(sampler_T, trainer_T):
            return
        self._delivery_done, self._compared = True, self._engine.version
        self._keep(step, check_weights_arrived(sampler_T, trainer_T, dtype=self._dtype))

    def published(self, step: int, weights: WeightSource, updates: Sequence[Update] = ()) -> None:
        """After every sync: weights that these updates have moved are not those published before.

        Raises RunError when they are. Float32 alone can be checked so.
        """
        if self._changed_done:
            return
        before, self._published = self._published, fingerprint(weights)
        reports = [update.report for update in updates if update.report.applied]
        if any(report.grad_norm and report.learning_rate > 0.0 for report in reports):
            self._changed_done = True
            self._keep(step, check_weights_changed(before, self._published))

    def _keep(self, step: int, result: CheckResult) -> None:
        self._record.event(
            Event.CHECKED,
            step,
            check=result.name,
            passed=result.passed,
            value=result.value,
            limit=result.limit,
        )
        result.require()
        self._view.message(f"checked: {result.sentence}")
