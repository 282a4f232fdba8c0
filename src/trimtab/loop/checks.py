"""Self-checks of a process's first steps: do sampler and trainer speak of the same policy?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.loop.collect import Collected, Wanted
from trimtab.loop.observe import Step, untouched
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.rollout.checks import CheckResult, check_alone, check_ratio, check_weights_arrived
from trimtab.rollout.engine import RolloutEngine


class SelfChecks:
    """Three checks, each made once in a process (so a resumed run makes them again), each at the first
    step that allows it: one rollout sampled alone; the ratio before any update; the ratio again after
    an update was delivered to the engine.
    """

    def __init__(self, engine: RolloutEngine, record: RunRecord) -> None:
        self._engine = engine
        self._record = record
        self._alone_done = False
        self._delivery_done = False
        self._compared: int | None = None
        """Version whose ratio was found to be 1; None before."""

    async def sampled(self, step: int, found: Collected, wanted: Wanted) -> None:
        """A rollout of the first group, sampled again alone: the same tokens and log-probabilities.

        Raises RunError with the likely causes when they differ.
        """
        if self._alone_done or not found.fresh:
            return
        self._alone_done = True
        together = found.fresh[0].group
        async for alone in self._engine.generate([together.draw], 1, wanted.sampling, seed=wanted.seed):
            result = check_alone(alone.rollouts[0], together.rollouts[0], dtype=self._engine.dtype)
            self._keep(step, result)

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
        self._keep(step.number, check(sampler_T, trainer_T, dtype=self._engine.dtype))

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
