"""From what a step did to its metrics and its place in the record. Changes nothing of the run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.memory import PromptMemory
from trimtab.data.selection import Reason
from trimtab.loop.collect import Collected
from trimtab.loop.stages import Update
from trimtab.loop.state import LoopState
from trimtab.metrics import Metrics, merge
from trimtab.probes import (
    coefficient_metrics,
    flagged_groups,
    group_metrics,
    memory_metrics,
    mismatch_metrics,
    pace_metrics,
    pool_metrics,
    reward_metrics,
    selection_metrics,
    time_metrics,
    update_metrics,
)
from trimtab.record import machine
from trimtab.record.events import Event
from trimtab.record.rollouts import GroupEntry, UpdateEntry
from trimtab.record.writer import RunRecord
from trimtab.types import Batch, RewardedGroup


@dataclass(frozen=True, slots=True)
class Pace:
    """How a step's training kept up with sampling beside it: collected steps that waited when it began,
    itself included, and seconds that it stood still.
    """

    queue: int
    trainer_wait: float


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """All that a step leaves to be seen. ``version`` is the policy that its first update starts from; where
    steps take turns it has sampled the fresh groups too.

    A step that failed has no ``rewarded`` groups and no ``updates``, or only the former. ``pace``: None where
    steps take turns.
    """

    number: int
    version: int
    wanted: int
    max_new_tokens: int
    collected: Collected
    rewarded: list[RewardedGroup] = field(default_factory=list[RewardedGroup])
    updates: list[Update] = field(default_factory=list[Update])
    pace: Pace | None = None


def measure(step: Step, algorithm: Algorithm, state: LoopState) -> Metrics:
    """Every metric of the step but its times, from values that merge correctly."""
    shaping = algorithm.shaping
    penalty_free = None if shaping is None else shaping.breakpoints(step.max_new_tokens)[0].length
    found = step.collected
    metrics = group_metrics(found.fresh, max_new_tokens=step.max_new_tokens, penalty_free=penalty_free)
    metrics |= selection_metrics(
        wanted=step.wanted,
        rounds=found.rounds,
        fresh=found.fresh,
        fresh_kept=found.fresh_kept,
        trained=found.kept,
        carried_in=sum(judged.carried_in and judged.verdict.keep for judged in found.judged),
        carried_out=len(found.surplus),
        dropped=_dropped(found),
        version=step.version,
    )
    metrics |= _pool(state.memory, len({prompt.id for prompt in state.cursor.prompts}))
    metrics |= reward_metrics(step.rewarded, penalty_free=penalty_free)
    metrics |= merge([update_metrics(update.batch, update.report) for update in step.updates])
    compared = untouched(step.updates)
    if compared is not None:
        metrics |= mismatch_metrics(compared, step.version)
    return metrics | coefficient_metrics(_coefficients(algorithm, state))


def measure_cost(seconds: dict[str, float], total: float, step: Step) -> Metrics:
    """``seconds/*``, ``tokens_per_second/*`` and ``memory/*`` of the step."""
    sampled = sum(rollout.length for scored in step.collected.fresh for rollout in scored.group.rollouts)
    updated = sum(update.batch.num_tokens for update in step.updates)
    tokens = {"sample": sampled, "update": updated}
    metrics: Metrics = {}
    if step.pace is not None:
        found = step.collected
        seconds = seconds | {"sample": found.sample_seconds, "grade": found.grade_seconds}
        metrics = pace_metrics(
            queue=step.pace.queue,
            trainer_wait=step.pace.trainer_wait,
            sampler_wait=found.waited,
            hidden=found.hidden,
            collection=found.sample_seconds + found.grade_seconds,
        )
    metrics |= time_metrics(
        seconds, step=total, tokens={stage: n for stage, n in tokens.items() if n and seconds.get(stage)}
    )
    return metrics | memory_metrics(
        resident=machine.resident_bytes(), peak=machine.peak_bytes(), device_peak=machine.device_peak_bytes()
    )


def untouched(updates: Sequence[Update]) -> Batch | None:
    """A batch of the step with the trainer's own log-probabilities from before any update, as
    ``old_logprobs_T``; None where the step has none.

    It is the batch of the first update with a forward pass, which ran on the weights that the engine
    sampled from and so shows for nothing whether both sides agree. Updates before it were skipped. Tokens
    that the pass left out (``skip_silent``) are masked.
    """
    for update in updates:
        trainer_T = update.report.trace.logprobs_T
        if trainer_T is not None:
            seen_T = update.batch.mask_T & ~trainer_T.isnan()
            return dataclasses.replace(update.batch, mask_T=seen_T).with_columns(old_logprobs_T=trainer_T)
        if update.report.applied:
            return None
    return None


def write_rollouts(record: RunRecord, step: Step) -> None:
    """The step's groups with grades, verdicts and rewards, and what each token received."""
    rewarded = {group.scored.group.key: group for group in step.rewarded}
    entries = [
        GroupEntry(
            scored=judged.scored,
            kept=judged.verdict.keep,
            reason=str(judged.verdict.reason),
            carried=judged.carried_in,
            rewarded=rewarded.get(judged.scored.group.key) if judged.verdict.keep else None,
        )
        for judged in step.collected.judged
    ]
    updates = [UpdateEntry(update.number, update.batch, update.report.trace) for update in step.updates]
    decided = [judged.scored for judged in step.collected.judged]
    flags = flagged_groups(decided, [(entry.batch, entry.trace) for entry in updates])
    record.rollouts(step.number, entries, updates, flags)


def write_events(record: RunRecord, step: Step) -> None:
    """Grader faults in what the step sampled, dropped groups with their reasons, and skipped updates."""
    for judged in step.collected.judged:
        if not judged.verdict.keep:
            key, reason = judged.scored.group.key, str(judged.verdict.reason)
            record.event(Event.GROUP_DROPPED, step.number, group=key, reason=reason)
    for scored in step.collected.fresh:
        for rollout, grade in zip(scored.group.rollouts, scored.grades, strict=True):
            if not grade.graded:
                record.event(
                    Event.GRADER_FAILED,
                    step.number,
                    rollout=rollout.key,
                    state=str(grade.state),
                    detail=grade.detail,
                )
    for update in step.updates:
        if not update.report.applied:
            record.event(
                Event.UPDATE_SKIPPED, step.number, update=update.number, reason=update.report.skip_reason
            )


def _dropped(found: Collected) -> dict[str, int]:
    reasons: Counter[Reason] = Counter(j.verdict.reason for j in found.judged if not j.verdict.keep)
    return {str(reason): count for reason, count in reasons.items()}


def _pool(memory: PromptMemory, prompts: int) -> Metrics:
    seen = memory.coverage(prompts)
    return pool_metrics(**{field.name: getattr(seen, field.name) for field in dataclasses.fields(seen)})


def _coefficients(algorithm: Algorithm, state: LoopState) -> dict[str, float]:
    coefficients = {term.name: coefficient for coefficient, term in algorithm.objective.terms}
    if state.counters.entropy_coefficient is not None:
        coefficients["entropy"] = state.counters.entropy_coefficient
    return coefficients
