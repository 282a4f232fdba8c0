"""The asynchronous loop: later steps are collected while a step is trained, by policies up to S versions old.

    collection    0 1 2 | 3 | 4 | 5 ...          S = 2, answers drained: "|" is a delivery of weights
    training          0   1   2   3 ...

The stages are those of the synchronous loop, and with S = 0 so are all its results. See ``staleness`` for the
bound, ``ahead`` for who changes which state, docs/asynchronous.md for both and for the correction.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.config.arguments import trainer_dtype
from trimtab.errors import RunError
from trimtab.loop import learning, observe, stages
from trimtab.loop.after import Due, close, doctor_of, look, save
from trimtab.loop.ahead import Ahead
from trimtab.loop.checks import SelfChecks
from trimtab.loop.clock import Stopwatch
from trimtab.loop.collected import Collected
from trimtab.loop.evaluating import evaluate_policy
from trimtab.loop.machines import Machines
from trimtab.loop.offload import offloaded
from trimtab.loop.staleness import Bound, require_drained, still_usable, without
from trimtab.loop.state import LoopState
from trimtab.record.events import Event

UNREPEATABLE = (
    'cluster.in_flight = "update" replaces weights below running answers at moments that no count decides, '
    'so this run cannot be repeated exactly; "drain" can'
)


async def train(run: Run, machines: Machines, state: LoopState) -> None:
    """Run the loop from ``state`` to ``run.run.steps``, evaluations at start and end included.

    Evaluations wait until nothing is sampled, and are of the weights that their step has left.
    """
    algorithm = run.build_algorithm()
    bound = Bound.of(run, algorithm.selection)
    if bound.staleness:
        machines = replace(machines, trainer=offloaded(machines.trainer))
    if bound.in_flight and bound.staleness:
        machines.record.event(Event.WARNED, state.counters.step, message=UNREPEATABLE)
        machines.view.message(UNREPEATABLE)
    checks = SelfChecks(machines.engine, machines.record, machines.view, dtype=trainer_dtype(run))
    doctor = doctor_of(run, machines, state)
    checks.published(state.counters.step, await stages.sync(machines.trainer, machines.engine))
    if state.counters.step == 0 and machines.held_out:
        await evaluate_policy(run, machines, state, "start")
    _forget_unusable(machines, state, bound)
    ahead = Ahead(run, bound.selection(algorithm.selection), machines, state, checks, bound)
    try:
        await ahead.admit(bound.delivered(state.counters.step))
        while state.counters.step < run.run.steps:
            turn = train_step(run, algorithm, machines, state, checks, ahead)
            step = await ahead.alongside(turn)
            due = Due.after(step, run, algorithm, machines, state)
            regular = bound.delivered(due.done) == due.done
            if due.evaluation:
                await ahead.quiet()
                if machines.engine.version != machines.trainer.version:
                    await stages.sync(machines.trainer, machines.engine)
                await evaluate_policy(run, machines, state, f"step {due.done}")
            if regular:
                await ahead.admit(due.done)
            sick = look(doctor, machines, state, saving=due.saving)
            if due.saving or sick:
                if not regular:
                    await ahead.quiet()  # what it is at needs weights that the checkpoint will not have
                await save(doctor, machines, state)
            due.stop(sick)
    finally:
        await ahead.close()
    await close(run, machines, state)


async def train_step(
    run: Run,
    algorithm: Algorithm,
    machines: Machines,
    state: LoopState,
    checks: SelfChecks,
    ahead: Ahead,
) -> observe.Step:
    """One turn of the loop: take a collected step, train on it, and deliver the weights where it is time."""
    watch, before = Stopwatch(), ahead.waited
    wanted, bound = learning.wanted_of(run), ahead.bound
    found, pace = await ahead.take()
    if bound.staleness:
        watch.add("wait", pace.trainer_wait)
    else:
        watch.add("sample", found.sample_seconds)
        watch.add("grade", found.grade_seconds)
    version = machines.trainer.version
    step = observe.Step(
        state.counters.step, version, wanted.groups, wanted.sampling.max_new_tokens, found, pace=pace
    )
    with learning.evidence(machines.record, step):
        _within(found, bound, version, ahead)
    step = await learning.learn(run, algorithm, machines, state, checks, step, watch)
    done = step.number + 1
    deliver = bound.delivered(done) == done or done == run.run.steps
    with learning.evidence(machines.record, step):
        with watch.stage("sync"):
            weights, version = await machines.trainer.publish()
        if deliver:
            if not bound.in_flight or done == run.run.steps:
                await ahead.quiet()
                if bound.staleness:
                    watch.add("wait", ahead.waited - before - pace.trainer_wait)
            async with ahead.still:
                with watch.stage("sync"):
                    await machines.engine.load_weights(weights, version)
        checks.published(step.number, weights, step.updates)
        if deliver and bound.staleness:
            draws = [scored.group.draw for scored in found.kept]
            await checks.delivered(step.number, machines.trainer, draws, wanted)
    pace = observe.Pace(pace.queue, ahead.waited - before)
    step = replace(step, pace=pace if bound.staleness else None)
    learning.finish(step, algorithm, machines, state, watch, synced=deliver)
    return step


def _within(found: Collected, bound: Bound, version: int, ahead: Ahead) -> None:
    """Nothing older than the bound is trained on.

    Drained answers cannot be older, and raise RunError where an engine says otherwise. Where weights change
    below running answers an engine may fall behind: then the group is dropped and its prompt drawn again.
    """
    if not bound.in_flight:
        require_drained(found)
    stale = bound.too_old(found, version)
    if not stale:
        return
    if not bound.in_flight:
        raise RunError(
            f"group {stale[0].group.key} holds tokens more than {bound.staleness} versions older than "
            f"version {version}, which is trained now; the engine did not take the weights it was given"
        )
    without(found, stale)
    ahead.again(stale)


def _forget_unusable(machines: Machines, state: LoopState, bound: Bound) -> None:
    """Collect again what a checkpoint's queue holds beyond a bound that has become tighter."""
    count = still_usable(state.queue, bound, state.counters.step, machines.trainer.version)
    if count < len(state.queue):
        lost = len(state.queue) - count
        machines.view.message(
            f"{lost} collected steps of the checkpoint are too old now and are collected again"
        )
        del state.queue[count:]
