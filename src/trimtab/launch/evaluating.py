"""An evaluation by itself: of a checkpoint, or of the model that a run would begin with."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from trimtab.config import Run
from trimtab.errors import DataError, SettingError
from trimtab.evaluation.evaluator import Evaluation
from trimtab.evaluation.evaluator import evaluate as evaluate_prompts
from trimtab.launch.folders import model_folder
from trimtab.launch.plant import sampler_of
from trimtab.launch.prompts import held_out, problem_lines, prompts_of
from trimtab.loop.view import View
from trimtab.record.evaluations import load_evaluation
from trimtab.record.layout import RunFolder
from trimtab.rewards.build import build_rubric
from trimtab.rollout.local import effective_sampler


def evaluate(run: Run, *, folder: Path | None, step: int | None, view: View) -> dict[str, Any]:
    """Evaluate the checkpoint of ``step`` (None: the newest) of the run in ``folder``, or, without a
    folder, the model ``run.model.path``, on the run's held-out prompts; compared with the run's start.
    """
    with contextlib.ExitStack() as stack:
        path = run.model.path
        if folder is not None:
            path = str(stack.enter_context(model_folder(folder, step)))
        model, engine, where = stack.enter_context(sampler_of(run, path))
        rubric = build_rubric(run.reward)
        prompts, problems = prompts_of(run, model, rubric)
        chosen = held_out(run, prompts)
        if not chosen:
            raise SettingError("this run holds out no prompts; set data.held_out to evaluate it")
        sampler = run.evaluation_sampler()
        lines = [
            f"model: {path}",
            f"sampler: {effective_sampler(model, sampler)}",
            *where,
            *problem_lines(problems, prompts),
            *rubric.describe(),
        ]
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
