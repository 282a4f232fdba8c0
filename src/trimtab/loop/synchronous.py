"""The synchronous loop: every step trains on what the current policy has just sampled.

collect -> shape -> pack -> annotate -> advantages -> update -> sync -> (evaluate, save)
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.errors import RunError
from trimtab.evaluation.evaluator import Evaluation, evaluate
from trimtab.loop import observe, stages
from trimtab.loop.checks import check_first_group, check_step
from trimtab.loop.clock import Stopwatch
from trimtab.loop.collect import Collected, Wanted, collect
from trimtab.loop.saving import save_checkpoint
from trimtab.loop.state import LoopState
from trimtab.loop.view import View
from trimtab.metrics import read
from trimtab.record.evaluations import load_evaluation, save_evaluation
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine
from trimtab.trainer.trainer import Trainer
from trimtab.types import Prompt

MAX_EMPTY_STEPS = 3
"""Steps in a row without a group to train on that end a run without selection settings of its own."""


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
    await stages.sync(machines.trainer, machines.engine)
    if state.counters.step == 0 and machines.held_out:
        await evaluate_policy(run, machines, state, "start")
    while state.counters.step < run.run.steps:
        await train_step(run, algorithm, machines, state)
        done = state.counters.step
        last = done == run.run.steps
        if machines.held_out and not last and run.evaluation.every and done % run.evaluation.every == 0:
            await evaluate_policy(run, machines, state, f"step {done}")
        if last or done % run.record.checkpoint_every == 0:
            await save_checkpoint(machines.trainer, machines.record, state)
    if machines.held_out:
        await evaluate_policy(run, machines, state, "final")


async def train_step(run: Run, algorithm: Algorithm, machines: Machines, state: LoopState) -> None:
    """One turn of the loop."""
    watch = Stopwatch()
    number, version = state.counters.step, machines.engine.version
    sampling = run.sampling
    wanted = Wanted(
        sampling.prompts_per_step, sampling.samples_per_prompt, sampling.sampler(), seed=run.run.seed
    )
    found = await collect(machines.engine, machines.rubric, state, algorithm.selection, wanted)
    watch.add("sample", found.sample_seconds)
    watch.add("grade", found.grade_seconds)
    machines.rubric.check(found.fresh)
    if number == 0:
        await check_first_group(machines.engine, machines.record, found, wanted)
    rewarded = stages.shape(found.kept, algorithm, sampling.max_new_tokens)
    updates = await update_policy(run, algorithm, machines, state, rewarded, watch)
    step = observe.Step(number, version, wanted.groups, sampling.max_new_tokens, found, rewarded, updates)
    if number <= 1:
        check_step(step, machines.engine, machines.record)
    with watch.stage("sync"):
        await stages.sync(machines.trainer, machines.engine)
    _advance(state, step)
    _record(step, algorithm, machines, state, watch)
    _refuse_emptiness(found, algorithm, machines, state)


async def update_policy(
    run: Run,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    rewarded: list[stages.RewardedGroup],
    watch: Stopwatch,
) -> list[stages.Update]:
    """From rewarded groups to the step's updates; none when there is no group to train on."""
    batch = stages.pack_groups(rewarded, algorithm)
    if not batch.num_sequences:
        return []
    with watch.stage("annotate"):
        batch = await stages.annotate(machines.trainer, batch, algorithm)
    with watch.stage("advantages"):
        batch = stages.advantages(batch, algorithm)
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
    state.evaluation_seconds += time.perf_counter() - started
    summary = evaluation.summary(run.evaluation.ks)
    save_evaluation(machines.record.folder, label, evaluation.to_json())
    if label != "start":
        start = Evaluation.from_json(load_evaluation(machines.record.folder, "start"))
        change = evaluation.against(start)
        summary["against_start"] = {
            "difference": change.difference,
            "interval": [change.low, change.high],
            "verdict": change.verdict,
        }
    machines.record.event(Event.EVALUATED, state.counters.step, label=label, **summary)
    machines.view.evaluation(label, summary)
    state.evaluations[label] = summary
    return evaluation


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
    state.memory.observe_trained(found.kept)


def _record(
    step: observe.Step, algorithm: Algorithm, machines: Machines, state: LoopState, watch: Stopwatch
) -> None:
    with watch.stage("observe"):
        metrics = observe.measure(step, algorithm, state)
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
    state.add_seconds(watch.seconds)
    state.train_seconds += watch.total


def _refuse_emptiness(found: Collected, algorithm: Algorithm, machines: Machines, state: LoopState) -> None:
    """A step without a group to train on is a normal outcome; several in a row end the run with the reasons."""
    if found.kept:
        return
    reasons = Counter(str(judged.verdict.reason) for judged in found.judged)
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "nothing was drawn"
    machines.record.event(Event.STEP_EMPTY, state.counters.step - 1, reason=told)
    machines.view.message(f"step {state.counters.step}: no group to train on ({told}); no update was made")
    bound = algorithm.selection.max_empty_steps if algorithm.selection else MAX_EMPTY_STEPS
    if state.counters.empty_steps >= bound:
        raise RunError(
            f"{bound} steps in a row found no group to train on; in the last one: {told}, of {found.draws} prompts "
            "drawn; all-wrong: easier prompts, more samples a prompt, or a grader that reads the answers; "
            "all-right: harder prompts"
        )
