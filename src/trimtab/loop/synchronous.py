"""The synchronous loop: every step trains on what the current policy has just sampled.

collect -> shape -> pack -> annotate -> advantages -> correct -> update -> sync -> (evaluate, save)
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.config.arguments import trainer_dtype
from trimtab.errors import RunError
from trimtab.loop import learning, observe, stages
from trimtab.loop.after import Due, close, doctor_of, look, save
from trimtab.loop.checks import SelfChecks
from trimtab.loop.clock import Stopwatch
from trimtab.loop.collect import collect
from trimtab.loop.collected import Collected, Wanted
from trimtab.loop.evaluating import evaluate_policy
from trimtab.loop.machines import Machines
from trimtab.loop.state import LoopState
from trimtab.trainer.faults import first_not_finite

__all__ = ["Machines", "evaluate_policy", "train", "train_step"]


async def train(run: Run, machines: Machines, state: LoopState) -> None:
    """Run the loop from ``state`` to ``run.run.steps``, evaluations at start and end included."""
    algorithm = run.build_algorithm()
    state.queue.clear()  # of an asynchronous run: never counted, so its prompts are drawn again
    checks = SelfChecks(machines.engine, machines.record, machines.view, dtype=trainer_dtype(run))
    doctor = doctor_of(run, machines, state)
    checks.published(state.counters.step, await stages.sync(machines.trainer, machines.engine))
    if state.counters.step == 0 and machines.held_out:
        await evaluate_policy(run, machines, state, "start")
    while state.counters.step < run.run.steps:
        step = await train_step(run, algorithm, machines, state, checks)
        due = Due.after(step, run, algorithm, machines, state)
        if due.evaluation:
            await evaluate_policy(run, machines, state, f"step {due.done}")
        sick = look(doctor, machines, state, saving=due.saving)
        if due.saving or sick:
            await save(doctor, machines, state)
        due.stop(sick)
    await close(run, machines, state)


async def train_step(
    run: Run, algorithm: Algorithm, machines: Machines, state: LoopState, checks: SelfChecks
) -> observe.Step:
    """One turn of the loop. A step that fails leaves its rollouts and grader faults in the record."""
    watch = Stopwatch()
    wanted = learning.wanted_of(run)
    number, version = state.counters.step, machines.engine.version
    found = await _collect(algorithm, machines, state, wanted)
    watch.add("sample", found.sample_seconds)
    watch.add("grade", found.grade_seconds)
    step = observe.Step(number, version, wanted.groups, run.sampling.max_new_tokens, found)
    await learning.vet(machines, checks, step, wanted)
    step = await learning.learn(run, algorithm, machines, state, checks, step, watch)
    with learning.evidence(machines.record, step):
        with watch.stage("sync"):
            weights = await stages.sync(machines.trainer, machines.engine)
        checks.published(number, weights, step.updates)
    learning.finish(step, algorithm, machines, state, watch)
    return step


async def _collect(algorithm: Algorithm, machines: Machines, state: LoopState, wanted: Wanted) -> Collected:
    """``collect``; where the engine finds the model damaged, the weight is named too."""
    try:
        return await collect(machines.engine, machines.rubric, state, algorithm.selection, wanted)
    except RunError as fault:
        source, _ = await machines.trainer.publish()
        name = first_not_finite(source)
        if name is None:
            raise
        raise RunError(f"the policy's weight {name} is not finite: {fault}") from None
