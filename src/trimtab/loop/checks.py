"""Self-checks of the first steps: do sampler and trainer speak of the same policy, and does it move?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.loop.collect import Collected, Wanted
from trimtab.loop.observe import Step, untouched
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.rollout.checks import CheckResult, check_alone, check_ratio, check_weights_arrived
from trimtab.rollout.engine import RolloutEngine


async def check_first_group(
    engine: RolloutEngine, record: RunRecord, found: Collected, wanted: Wanted
) -> None:
    """A rollout of the first group, sampled again alone: the same tokens and log-probabilities."""
    if not found.fresh:
        return
    together = found.fresh[0].group
    async for alone in engine.generate([together.draw], 1, wanted.sampling, seed=wanted.seed):
        _keep(record, 0, check_alone(alone.rollouts[0], together.rollouts[0], dtype=engine.dtype))


def check_step(step: Step, engine: RolloutEngine, record: RunRecord) -> None:
    """Sampler against trainer on the tokens just sampled: in step 0 on untouched weights (ratio 1), in
    step 1 on weights that were updated and delivered once.
    """
    if not step.updates:
        return
    batch = untouched(step.updates[0])
    fresh_T = batch.mask_T & (batch.version_S == step.version)[batch.seq_T]
    if not bool(fresh_T.any()):
        return
    check = check_ratio if step.number == 0 else check_weights_arrived
    result = check(batch.rollout_logprobs_T[fresh_T], batch.old_logprobs_T[fresh_T], dtype=engine.dtype)
    _keep(record, step.number, result)


def _keep(record: RunRecord, step: int, result: CheckResult) -> None:
    record.event(
        Event.CHECKED, step, check=result.name, passed=result.passed, value=result.value, limit=result.limit
    )
    result.require()
