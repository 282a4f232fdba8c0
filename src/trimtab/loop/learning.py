"""What both loops do with a collected step: learn from it, record it, and say what it was like."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.errors import TrimtabError
from trimtab.loop import notices, observe, stages
from trimtab.loop.checks import SelfChecks
from trimtab.loop.clock import Stopwatch
from trimtab.loop.collected import Collected, Wanted
from trimtab.loop.machines import Machines
from trimtab.loop.saving import keep_fault
from trimtab.loop.state import LoopState
from trimtab.metrics import read
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.trainer.faults import NotFiniteError
from trimtab.types import GradeState, RewardedGroup

MAX_EMPTY_STEPS = 3
"""Steps in a row that teach nothing and end a run without selection settings of its own."""

KEPT = "The policy as it is now is saved as a checkpoint"


def wanted_of(run: Run, *, ahead: int = 0) -> Wanted:
    """What each step of the run asks collection for."""
    sampling = run.sampling
    return Wanted(
        sampling.prompts_per_step,
        sampling.samples_per_prompt,
        sampling.sampler(),
        seed=run.run.seed,
        ahead=ahead,
    )


@contextmanager
def evidence(record: RunRecord, step: observe.Step) -> Iterator[None]:
    """A fault inside leaves the step's rollouts and grader faults in the record."""
    try:
        yield
    except TrimtabError:
        observe.write_events(record, step)
        observe.write_rollouts(record, step)
        raise


async def vet(
    machines: Machines, checks: SelfChecks, step: observe.Step, wanted: Wanted, *, alone: bool = True
) -> None:
    """Whether what was collected can be used at all. Raises RunError where grading or sampling is broken.

    alone: whether the engine has still the weights that sampled, so that it can be asked again.
    """
    with evidence(machines.record, step):
        machines.rubric.check(step.collected.fresh)
        if alone:
            await checks.sampled(step.number, step.collected, wanted)


async def learn(
    run: Run,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    checks: SelfChecks,
    step: observe.Step,
    watch: Stopwatch,
) -> observe.Step:
    """The step with its rewards and its updates. Raises NotFiniteError with what it saw kept for a replay."""
    with evidence(machines.record, step):
        rewarded = stages.shape(step.collected.kept, algorithm, run.sampling.max_new_tokens)
        step = replace(step, rewarded=rewarded)
    with evidence(machines.record, step):
        try:
            updates = await update_policy(run, algorithm, machines, state, step.rewarded, watch)
        except NotFiniteError as fault:
            await keep_fault(fault, machines.trainer, machines.record, state.counters)
            raise
        step = replace(step, updates=updates)
    with evidence(machines.record, step):
        checks.trained(step)
    return step


async def update_policy(
    run: Run,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    rewarded: list[RewardedGroup],
    watch: Stopwatch,
) -> list[stages.Update]:
    """From rewarded groups to the step's updates; none when there is no group to train on."""
    batch = stages.pack_groups(rewarded, algorithm)
    if not batch.num_sequences:
        return []
    with watch.stage("annotate"):
        once = run.trainer.updates_per_step * run.trainer.epochs == 1
        batch = await stages.annotate(machines.trainer, batch, algorithm, only_update=once)
    with watch.stage("advantages"):
        batch = stages.correct(stages.advantages(batch, algorithm), algorithm)
    if run.trainer.max_nonfinite_skips == 0:
        batch = stages.checked(batch, state.counters.updates)
    with watch.stage("update"):
        return await stages.update(
            machines.trainer,
            batch,
            stages.objective_of(algorithm, state.counters.entropy_coefficient),
            updates=run.trainer.updates_per_step,
            epochs=run.trainer.epochs,
            seed=run.run.seed * 1_000_003 + state.counters.step,
            first=state.counters.updates,
        )


def finish(
    step: observe.Step,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    watch: Stopwatch,
    *,
    synced: bool = True,
) -> None:
    """Count the step, record and tell it. synced: whether the engine got the step's weights."""
    _advance(state, step)
    _record(step, algorithm, machines, state, watch, synced=synced)
    _tell(step, machines, state)


def exhausted(step: observe.Step, algorithm: Algorithm, state: LoopState) -> str | None:
    """Why several steps in a row that taught nothing end the run; None where they do not."""
    bound = algorithm.selection.max_empty_steps if algorithm.selection else MAX_EMPTY_STEPS
    share = notices.cut_off(step.collected.fresh)
    if share is not None and state.counters.cut_steps >= bound:
        cut = notices.cut_off_sentence(share, step.max_new_tokens)
        return f"{bound} steps in a row could teach nothing; in the last one {cut}. {KEPT}"
    if state.counters.empty_steps < bound:
        return None
    return (
        f"{bound} steps in a row found no group to train on; in the last one: {_fates(step.collected)}. "
        "Where all are wrong: easier prompts, more samples a prompt, or a grader that reads the answers; "
        f"where all are right the policy has learned what these prompts can teach: harder prompts. {KEPT}"
    )


def _advance(state: LoopState, step: observe.Step) -> None:
    counters, found = state.counters, step.collected
    rollouts = [rollout for scored in found.fresh for rollout in scored.group.rollouts]
    counters.step += 1
    counters.updates += len(step.updates)
    counters.skipped_updates += sum(not update.report.applied for update in step.updates)
    counters.draws += found.draws
    counters.rollouts += len(rollouts)
    counters.tokens += sum(rollout.length for rollout in rollouts)
    counters.groups_trained += len(found.kept)
    counters.empty_steps = 0 if found.kept else counters.empty_steps + 1
    if found.fresh:
        counters.cut_steps = 0 if notices.cut_off(found.fresh) is None else counters.cut_steps + 1
    state.memory.observe_trained(found.kept)
    grades = [grade for scored in found.fresh for grade in scored.grades if grade.graded]
    counters.right += sum(grade.state is GradeState.RIGHT for grade in grades)
    counters.graded += len(grades)


def _record(
    step: observe.Step,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    watch: Stopwatch,
    *,
    synced: bool,
) -> None:
    with watch.stage("probe"):
        metrics = observe.measure(step, algorithm, state)
    with watch.stage("record"):
        observe.write_events(machines.record, step)
        observe.write_rollouts(machines.record, step)
        if synced:
            machines.record.event(Event.SYNCED, step.number, version=machines.engine.version)
    metrics |= observe.measure_cost(watch.seconds, watch.total, step)
    machines.record.step(step.number, metrics)
    values = read(metrics).values
    machines.view.step(state.counters.step, values)
    if algorithm.entropy_target is not None and "policy/entropy" in values:
        coefficient = state.counters.entropy_coefficient or 0.0
        state.counters.entropy_coefficient = algorithm.entropy_target.step(
            coefficient, values["policy/entropy"]
        )
    state.add_train_seconds(watch.seconds, watch.total)


def _tell(step: observe.Step, machines: Machines, state: LoopState) -> None:
    """Say it where a grader never moves, or where a step found fewer groups than it wanted or made no
    update; the last two are normal outcomes.
    """
    found, done = step.collected, state.counters.step
    for sentence in notices.constant_parts(found.fresh, state.counters.part_streaks):
        machines.record.event(Event.WARNED, step.number, message=sentence)
        machines.view.message(f"step {done}: {sentence}")
    if (lost := notices.lost_answers(found.fresh)) is not None:
        machines.view.message(f"step {done}: {lost}")
    if not found.kept:
        machines.record.event(Event.STEP_EMPTY, step.number, reason=_fates(found))
        machines.view.message(f"step {done}: no group to train on ({_fates(found)}); no update was made")
        return
    if len(found.kept) < step.wanted:
        machines.view.message(f"step {done}: {len(found.kept)} of {step.wanted} groups ({_fates(found)})")
    skipped = {update.report.skip_reason for update in step.updates if not update.report.applied}
    if skipped and not any(update.report.applied for update in step.updates):
        machines.view.message(f"step {done}: no update was made: {'; '.join(map(str, skipped))}")


def _fates(found: Collected) -> str:
    """The groups of a step by the reason they were kept or dropped, most frequent first."""
    reasons = Counter(str(judged.verdict.reason) for judged in found.judged)
    told = [f"{count} {reason}" for reason, count in reasons.most_common()]
    if not found.draws:
        told.append("nothing was drawn: every prompt rests, see data.memory")
    return f"{', '.join(told)}; {found.draws} prompts drawn"
