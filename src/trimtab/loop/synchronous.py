"""The synchronous loop: every step trains on what the current policy has just sampled.

collect -> shape -> pack -> annotate -> advantages -> update -> sync -> (evaluate, save)
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.doctor.diagnose import verdict
from trimtab.doctor.live import LiveDoctor
from trimtab.errors import RunError, TrimtabError
from trimtab.evaluation.evaluator import Evaluation, evaluate
from trimtab.loop import notices, observe, stages
from trimtab.loop.checks import SelfChecks
from trimtab.loop.clock import Stopwatch
from trimtab.loop.collect import Collected, Wanted, collect
from trimtab.loop.saving import keep_fault, save_checkpoint
from trimtab.loop.state import LoopState
from trimtab.loop.view import View
from trimtab.metrics import read
from trimtab.record.evaluations import load_evaluation, save_evaluation
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine
from trimtab.trainer.faults import NotFiniteError, first_not_finite
from trimtab.trainer.trainer import Trainer
from trimtab.types import GradeState, Prompt, RewardedGroup

MAX_EMPTY_STEPS = 3
"""Steps in a row that teach nothing and end a run without selection settings of its own."""

KEPT = "The policy as it is now is saved as a checkpoint"


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """What the loop drives. Any engine and trainer behind the same protocols will do."""

    engine: RolloutEngine
    trainer: Trainer
    rubric: Rubric
    record: RunRecord
    view: View
    held_out: tuple[Prompt, ...]


async def train(run: Run, machines: Machines, state: LoopState) -> None:
    """Run the loop from ``state`` to ``run.run.steps``, evaluations at start and end included."""
    algorithm = run.build_algorithm()
    checks = SelfChecks(machines.engine, machines.record, machines.view)
    doctor = LiveDoctor(run.doctor, machines.record, machines.view.message, state.counters.step)
    checks.published(state.counters.step, await stages.sync(machines.trainer, machines.engine))
    if state.counters.step == 0 and machines.held_out:
        await evaluate_policy(run, machines, state, "start")
    while state.counters.step < run.run.steps:
        step = await train_step(run, algorithm, machines, state, checks)
        done = state.counters.step
        last, exhausted = done == run.run.steps, _exhausted(step, algorithm, state)
        if machines.held_out and not last and run.evaluation.every and done % run.evaluation.every == 0:
            await evaluate_policy(run, machines, state, f"step {done}")
        saving = bool(last or exhausted or done % run.record.checkpoint_every == 0)
        sick = doctor.look(done, saving=saving)
        if doctor.seconds and doctor.diagnosis is not None:
            machines.view.verdict(verdict(doctor.diagnosis), doctor.diagnosis.found)
        state.add_train_seconds({"doctor": doctor.seconds} if doctor.seconds else {}, doctor.seconds)
        if saving or sick:
            await save_checkpoint(machines.trainer, machines.record, state, protect=doctor.protected)
            doctor.saved(done)
        if (exhausted or sick) and not last:
            raise RunError(exhausted or sick)
    if state.carried:
        waiting = [scored.group.key for scored in state.carried]
        machines.record.event(Event.GROUPS_WAITING, state.counters.step - 1, groups=waiting)
    if machines.held_out:
        await evaluate_policy(run, machines, state, "final")


async def train_step(
    run: Run, algorithm: Algorithm, machines: Machines, state: LoopState, checks: SelfChecks
) -> observe.Step:
    """One turn of the loop. A step that fails leaves its rollouts and grader faults in the record."""
    watch = Stopwatch()
    sampling, number, version = run.sampling, state.counters.step, machines.engine.version
    wanted = Wanted(
        sampling.prompts_per_step, sampling.samples_per_prompt, sampling.sampler(), seed=run.run.seed
    )
    found = await _collect(algorithm, machines, state, wanted)
    watch.add("sample", found.sample_seconds)
    watch.add("grade", found.grade_seconds)
    step = observe.Step(number, version, wanted.groups, sampling.max_new_tokens, found)
    try:
        machines.rubric.check(found.fresh)
        await checks.sampled(number, found, wanted)
        step = replace(step, rewarded=stages.shape(found.kept, algorithm, sampling.max_new_tokens))
        updates = await update_policy(run, algorithm, machines, state, step.rewarded, watch)
        step = replace(step, updates=updates)
        checks.trained(step)
        with watch.stage("sync"):
            weights = await stages.sync(machines.trainer, machines.engine)
        checks.published(number, weights, updates)
    except TrimtabError as fault:
        observe.write_events(machines.record, step)
        observe.write_rollouts(machines.record, step)
        if isinstance(fault, NotFiniteError):
            await keep_fault(fault, machines.trainer, machines.record, state.counters)
        raise
    _advance(state, step)
    _record(step, algorithm, machines, state, watch)
    _tell(step, machines, state)
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
        batch = stages.advantages(batch, algorithm)
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


async def evaluate_policy(run: Run, machines: Machines, state: LoopState, label: str) -> Evaluation:
    """Evaluate on the held-out prompts, keep what each received, and say how it compares to the start."""
    started = time.perf_counter()
    evaluation = await evaluate(
        machines.engine,
        machines.rubric,
        machines.held_out,
        samples=run.evaluation.samples,
        sampling=run.evaluation_sampler(),
        seed=run.run.seed,
    )
    start = None
    if "start" in state.evaluations:
        start = Evaluation.from_json(load_evaluation(machines.record.folder, "start"))
    summary = evaluation.summary(run.evaluation.ks, start) | _train_gap(evaluation, state)
    save_evaluation(machines.record.folder, label, evaluation.to_json())
    machines.record.event(Event.EVALUATED, state.counters.step, label=label, **summary)
    machines.view.evaluation(label, summary)
    state.evaluations[label] = summary
    state.evaluation_seconds += time.perf_counter() - started
    return evaluation


async def _collect(algorithm: Algorithm, machines: Machines, state: LoopState, wanted: Wanted) -> Collected:
    """``collect``; where the engine finds the model damaged, the weight is named too."""
    try:
        return await collect(machines.engine, machines.rubric, state, algorithm.selection, wanted)
    except RunError as fault:
        source, _ = await machines.trainer.publish()
        name = first_not_finite(dict(source))
        if name is None:
            raise
        raise RunError(f"the policy's weight {name} is not finite: {fault}") from None


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


def _train_gap(evaluation: Evaluation, state: LoopState) -> dict[str, float]:
    """``train_gap`` of the evaluation, where something was trained since the one before."""
    counters, held_out = state.counters, evaluation.values(1)
    right, graded = counters.right, counters.graded
    counters.right = counters.graded = 0
    return {"train_gap": right / graded - float(held_out.mean())} if graded and len(held_out) else {}


def _record(
    step: observe.Step, algorithm: Algorithm, machines: Machines, state: LoopState, watch: Stopwatch
) -> None:
    with watch.stage("probe"):
        metrics = observe.measure(step, algorithm, state)
    with watch.stage("record"):
        observe.write_events(machines.record, step)
        observe.write_rollouts(machines.record, step)
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


def _exhausted(step: observe.Step, algorithm: Algorithm, state: LoopState) -> str | None:
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
