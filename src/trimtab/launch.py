"""From a ``Run`` to running machines: the only file that chooses which engine and which trainer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.config import Run, opening_lines, run_to_dict
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import PromptMemory
from trimtab.data.prompts import PromptSet, load_prompts
from trimtab.errors import DataError, RunError, SettingError
from trimtab.evaluation.evaluator import Evaluation
from trimtab.evaluation.evaluator import evaluate as evaluate_prompts
from trimtab.loop.state import LoopState
from trimtab.loop.synchronous import Machines
from trimtab.loop.synchronous import train as train_loop
from trimtab.loop.view import View
from trimtab.models import LoadedModel, load_model
from trimtab.record.evaluations import load_evaluation
from trimtab.record.layout import RunFolder
from trimtab.record.summary import Summary
from trimtab.record.writer import RunRecord
from trimtab.rewards.build import build_rubric
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.checkpoint import Checkpoint, latest_checkpoint
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Prompt

SHOWN_PROBLEMS = 5


def train(run: Run, *, folder: Path, view: View, resume: bool = False) -> dict[str, Any]:
    """Train a run in ``folder`` and return its summary, as summary.json has it.

    With ``resume`` the run goes on from its newest complete checkpoint, or from the start where none
    was written yet; ``run.run.steps`` may have grown. Of a run that has finished already nothing is
    touched. Raises TrimtabError for everything that is the user's to mend.
    """
    began = time.perf_counter()
    finished = _finished(run, folder, resume=resume)
    if finished is not None:
        view.message(f"{folder} has finished its {finished['steps']} steps; raise run.steps to go on")
        view.finish(finished)
        return finished
    model = load_model(run.model.path, device=run.model.device, dtype=run.model.dtype)
    rubric = build_rubric(run.reward)
    prompts, problems = prompts_of(run, model, rubric)
    engine = LocalEngine(model)
    trainer = trainer_of(run, model)
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
        _refuse_fewer_steps(run, folder, state.counters.step)
        asyncio.run(trainer.load(checkpoint.path))
    lines = [*_opening(run, engine, trainer, prompts, problems, checkpoint), *rubric.describe()]
    with _record(run, folder, state, lines, resume=resume) as record:
        record.tokenizer(model.tokenizer)
        view.start(run.run.name, run.run.steps, lines)
        machines = Machines(engine, trainer, rubric, record, view, _held_out(run, prompts))
        try:
            asyncio.run(train_loop(run, machines, state))
        except KeyboardInterrupt:
            record.stop("interrupted", state.counters.step)
            raise
        summary = _summary(run, state)
        record.finish(summary, state.counters.step - 1)
    shown = summary.to_json()
    view.finish(shown)
    return shown


def evaluate(run: Run, *, folder: Path | None, step: int | None, view: View) -> dict[str, Any]:
    """Evaluate the checkpoint of ``step`` (None: the newest) of the run in ``folder``, or, without a
    folder, the model ``run.model.path``, on the run's held-out prompts; compared with the run's start.
    """
    path = run.model.path if folder is None else str(_model_folder(folder, step))
    model = load_model(path, device=run.model.device, dtype=run.model.dtype)
    rubric = build_rubric(run.reward)
    prompts, problems = prompts_of(run, model, rubric)
    chosen = _held_out(run, prompts)
    if not chosen:
        raise SettingError("this run holds out no prompts; set data.held_out to evaluate it")
    engine, sampler = LocalEngine(model), run.evaluation_sampler()
    lines = [f"model: {path}", f"sampler: {engine.describe(sampler)}", *_problem_lines(problems, prompts)]
    lines += rubric.describe()
    view.start(f"evaluation of {run.run.name}", 0, lines)
    done = asyncio.run(
        evaluate_prompts(
            engine, rubric, chosen, samples=run.evaluation.samples, sampling=sampler, seed=run.run.seed
        )
    )
    return done.summary(run.evaluation.ks, None if folder is None else _start_evaluation(folder))


def _start_evaluation(folder: Path) -> Evaluation | None:
    """The evaluation of the model that the run began with; None where the run has none."""
    try:
        return Evaluation.from_json(load_evaluation(RunFolder(folder), "start"))
    except DataError:
        return None


def export(folder: Path, *, step: int | None, to: Path) -> Path:
    """Copy the model of a checkpoint to ``to``, as a folder that transformers loads."""
    source = _model_folder(folder, step)
    if to.exists():
        raise RunError(f"{to} exists already; export writes a new folder")
    shutil.copytree(source, to)
    return to


def _finished(run: Run, folder: Path, *, resume: bool) -> dict[str, Any] | None:
    """The summary of a run that has nothing left to do; None where there is something to do.

    Raises RunError where a new run would land on an old one, or fewer steps are asked than were done.
    """
    there = RunFolder(folder)
    if not resume:
        if there.run.exists() or there.checkpoint_steps():
            raise RunError(f"{folder} already holds a run; resume it, or give the new run another folder")
        return None
    if not there.summary.exists():
        return None
    summary: dict[str, Any] = json.loads(there.summary.read_text(encoding="utf-8"))
    _refuse_fewer_steps(run, folder, summary["steps"])
    return summary if summary["steps"] == run.run.steps else None


def _refuse_fewer_steps(run: Run, folder: Path, done: int) -> None:
    if done > run.run.steps:
        raise RunError(
            f"{folder} has done {done} steps already, run.steps = {run.run.steps} asks for fewer; "
            f"set run.steps = {done} or more, or start a new run"
        )


def _model_folder(folder: Path, step: int | None) -> Path:
    run_folder = RunFolder(folder)
    if step is not None:
        path = run_folder.checkpoint_of(step)
        if not path.is_dir():
            known = ", ".join(map(str, run_folder.checkpoint_steps())) or "none"
            raise RunError(f"{folder} has no checkpoint of step {step} (it has: {known})")
        return path / "model"
    newest = latest_checkpoint(run_folder.checkpoints)
    if newest is None:
        raise RunError(f"{folder} has no checkpoint yet; the first comes after record.checkpoint_every steps")
    return newest.path / "model"


def prompts_of(run: Run, model: LoadedModel, rubric: Rubric) -> tuple[PromptSet, list[Unverifiable]]:
    """All prompts but those whose gold answers cannot be verified against themselves."""
    longest = max(run.sampling.max_new_tokens, run.evaluation_sampler().max_new_tokens)
    prompts = load_prompts(run.data, model, longest)
    problems = rubric.self_check([*prompts.train, *prompts.held_out])
    usable = prompts.without({bad.prompt_id for bad in problems})
    if not usable.train:
        raise DataError("no training prompt is left: " + "\n".join(_problem_lines(problems, prompts)))
    return usable, problems


def trainer_of(run: Run, model: LoadedModel) -> LocalTrainer:
    """The trainer, with a reference model or a critic only where the algorithm needs one."""
    needs = run.build_algorithm().needs
    reference = None
    if "ref_logprobs_T" in needs:
        path = run.model.reference or run.model.path
        reference = load_model(path, device=run.model.device, dtype=run.model.dtype)
    updates = run.run.steps * run.trainer.updates_per_step * run.trainer.epochs
    return LocalTrainer(
        model,
        temperature=run.sampling.temperature,
        config=run.trainer,
        reference=reference,
        critic="values_T" in needs,
        seed=run.run.seed,
        total_updates=updates - (run.trainer.critic_warmup_updates if "values_T" in needs else 0),
        exact_sampler=True,
    )


def _start_coefficient(run: Run) -> float | None:
    algorithm = run.build_algorithm()
    if algorithm.entropy_target is None:
        return None
    return next((c for c, term in algorithm.objective.terms if term.name == "entropy"), 0.0)


def _held_out(run: Run, prompts: PromptSet) -> tuple[Prompt, ...]:
    return prompts.held_out[: run.evaluation.prompts]


def _record(run: Run, folder: Path, state: LoopState, lines: Sequence[str], *, resume: bool) -> RunRecord:
    facts = {"opening": list(lines)}
    seeds = {"run": run.run.seed, "data": run.data.seed}
    plain = run_to_dict(run)
    if resume and RunFolder(folder).run.exists():
        return RunRecord.resume(
            folder, step=state.counters.step, run=plain, seeds=seeds, facts=facts, config=run.record
        )
    return RunRecord.create(folder, run=plain, seeds=seeds, facts=facts, config=run.record)


def _opening(
    run: Run,
    engine: LocalEngine,
    trainer: LocalTrainer,
    prompts: PromptSet,
    problems: Sequence[Unverifiable],
    checkpoint: Checkpoint | None,
) -> list[str]:
    """What a run says before it spends anything."""
    model = engine.model
    millions = sum(p.numel() for p in model.module.parameters()) / 1e6
    lines = [
        f"model: {run.model.path}, {millions:.2f} M parameters, {model.dtype}, {model.device}",
        f"sampler: {engine.describe(run.sampling.sampler())}",
        *_evaluation_sampler(run, engine),
        *trainer.describe().splitlines(),
        *opening_lines(run),
        *prompts.lines(),
        *_problem_lines(problems, prompts),
    ]
    if checkpoint is not None:
        lines.append(f"resumed from {checkpoint.path.name}")
        lines += [f"passed over a damaged checkpoint, {fault}" for fault in checkpoint.passed_over]
    return lines


def _evaluation_sampler(run: Run, engine: LocalEngine) -> list[str]:
    """The evaluation's sampler, where it is another one than that of training."""
    own = run.evaluation_sampler()
    if run.data.held_out == 0 or own == run.sampling.sampler():
        return []
    return [f"evaluation sampler: {engine.describe(own)}"]


def _problem_lines(problems: Sequence[Unverifiable], prompts: PromptSet) -> list[str]:
    if not problems:
        return []
    places = prompts.report.places
    shown = [
        f"  {places.get(bad.prompt_id, bad.prompt_id)}: {bad.reason} ({bad.prompt_id}, gold {bad.answer})"
        for bad in problems[:SHOWN_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    shown += [f"  and {more} more"] if more else []
    return [f"left out {len(problems)} prompts whose gold answer does not grade as right:", *shown]


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
