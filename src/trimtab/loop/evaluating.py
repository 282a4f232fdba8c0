"""Evaluations of the policy on the held-out prompts, as the loops make them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time

from trimtab.config import Run
from trimtab.evaluation.evaluator import Evaluation, evaluate
from trimtab.loop.machines import Machines
from trimtab.loop.state import LoopState
from trimtab.record.evaluations import load_evaluation, save_evaluation
from trimtab.record.events import Event


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


def _train_gap(evaluation: Evaluation, state: LoopState) -> dict[str, float]:
    """``train_gap`` of the evaluation, where something was trained since the one before."""
    counters, held_out = state.counters, evaluation.values(1)
    right, graded = counters.right, counters.graded
    counters.right = counters.graded = 0
    return {"train_gap": right / graded - float(held_out.mean())} if graded and len(held_out) else {}
