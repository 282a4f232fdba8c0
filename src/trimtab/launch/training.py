"""Training: from a run and its folder to a summary, through every restart of lost trainer ranks."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.config import Run, run_to_dict
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import PromptMemory
from trimtab.data.prompts import PromptSet
from trimtab.errors import WeightsLostError
from trimtab.launch.folders import finished, refuse_fewer_steps
from trimtab.launch.opening import lines_of
from trimtab.launch.plant import Plant, plant_of
from trimtab.launch.prompts import held_out, prompts_of
from trimtab.loop import asynchronous, synchronous
from trimtab.loop.machines import Machines
from trimtab.loop.state import LoopState
from trimtab.loop.view import View
from trimtab.record.events import Event
from trimtab.record.layout import RunFolder
from trimtab.record.summary import Summary
from trimtab.record.writer import RunRecord
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import Rubric
from trimtab.trainer.checkpoint import Checkpoint, latest_checkpoint


def train(run: Run, *, folder: Path, view: View, resume: bool = False) -> dict[str, Any]:
    """Train a run in ``folder`` and return its summary, as summary.json has it.

    With ``resume`` the run goes on from its newest complete checkpoint, or from the start where none
    was written yet; ``run.run.steps`` may have grown. Of a run that has finished already nothing is
    touched. Raises TrimtabError for everything that is the user's to mend.
    """
    began = time.perf_counter()
    done = finished(run, folder, resume=resume)
    if done is not None:
        view.message(f"{folder} has finished its {done['steps']} steps; raise run.steps to go on")
        view.finish(done)
        return done
    with plant_of(run) as plant:
        rubric = build_rubric(run.reward)
        prompts, problems = prompts_of(run, plant.model, rubric)
        state, checkpoint = _state(run, folder, plant, prompts, began, resume=resume)
        lines = [*lines_of(run, plant, prompts, problems, checkpoint), *rubric.describe()]
        with _record(run, folder, plant, state, lines, resume=resume) as record:
            record.tokenizer(plant.model.tokenizer)
            view.start(run.run.name, run.run.steps, lines)
            while True:
                try:
                    _loop(run, plant, rubric, record, view, prompts, state)
                    break
                except WeightsLostError:
                    if not plant.renew():
                        raise
                state, checkpoint = _state(run, folder, plant, prompts, began, resume=True)
                _say_restart(record, view, checkpoint, state.counters.step)
            summary = _summary(run, state)
            record.finish(summary, state.counters.step - 1)
    shown = summary.to_json()
    view.finish(shown)
    return shown


def _loop(
    run: Run,
    plant: Plant,
    rubric: Rubric,
    record: RunRecord,
    view: View,
    prompts: PromptSet,
    state: LoopState,
) -> None:
    """The loop that the run asks for, watched where it has workers."""
    machines = Machines(plant.engine, plant.trainer, rubric, record, view, held_out(run, prompts))
    loop = asynchronous.train if run.cluster.staleness else synchronous.train
    try:
        with plant.watched(record, view):
            asyncio.run(loop(run, machines, state))
    except KeyboardInterrupt:
        record.stop("interrupted", state.counters.step)
        raise


def _state(
    run: Run, folder: Path, plant: Plant, prompts: PromptSet, began: float, *, resume: bool
) -> tuple[LoopState, Checkpoint | None]:
    """The loop's state, fresh or from the newest checkpoint, which the trainer takes back too."""
    state = LoopState(
        PromptCursor(prompts.train, run.run.seed),
        PromptMemory(run.data.memory),
        held_out=fingerprint(prompts.held_out),
        began=began,
    )
    state.counters.entropy_coefficient = _start_coefficient(run)
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints) if resume else None
    if checkpoint is not None:
        state.load(checkpoint.path / "loop")
        refuse_fewer_steps(run, folder, state.counters.step)
        plant.load(checkpoint.path)
    return state, checkpoint


def _say_restart(record: RunRecord, view: View, checkpoint: Checkpoint | None, step: int) -> None:
    name = None if checkpoint is None else checkpoint.path.name
    record.event(Event.RANKS_RESTARTED, step, checkpoint=name)
    view.message(f"trainer ranks were started anew; going on from {name or 'the beginning'}")


def _start_coefficient(run: Run) -> float | None:
    algorithm = run.build_algorithm()
    if algorithm.entropy_target is None:
        return None
    return next((c for c, term in algorithm.objective.terms if term.name == "entropy"), 0.0)


def _record(
    run: Run, folder: Path, plant: Plant, state: LoopState, lines: Sequence[str], *, resume: bool
) -> RunRecord:
    facts = {"opening": list(lines), **plant.facts()}
    seeds = {"run": run.run.seed, "data": run.data.seed}
    plain = run_to_dict(run)
    if resume and RunFolder(folder).run.exists():
        return RunRecord.resume(
            folder, step=state.counters.step, run=plain, seeds=seeds, facts=facts, config=run.record
        )
    return RunRecord.create(folder, run=plain, seeds=seeds, facts=facts, config=run.record)


def _summary(run: Run, state: LoopState) -> Summary:
    return Summary(
        algorithm=run.build_algorithm().name,
        start=state.evaluations.get("start"),
        final=state.evaluations.get("final"),
        steps=state.counters.step,
        tokens=state.counters.tokens,
        train_seconds=state.train_seconds,
        evaluation_seconds=state.evaluation_seconds,
        total_seconds=state.total_seconds,
        stages=state.seconds,
        peak_memory_bytes=state.peak_bytes,
    )
