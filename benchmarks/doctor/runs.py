"""Making the runs: the product's own parts, put together by hand so that a fault fits in between.

The self-checks of sampler and trainer are left out, and nothing ends a run that teaches nothing: they
would stop a fault before its symptoms show, which is what they are for.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.doctor.scene import FOLDER, ROOT, Scene

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run, opening_lines, run_from_dict, run_to_dict
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import PromptMemory
from trimtab.data.prompts import load_prompts
from trimtab.errors import TrimtabError
from trimtab.loop import stages
from trimtab.loop.state import LoopState
from trimtab.loop.synchronous import Machines, evaluate_policy, train_step
from trimtab.models import LoadedModel, load_model
from trimtab.record.summary import Summary
from trimtab.record.writer import RunRecord
from trimtab.rewards.build import build_rubric
from trimtab.trainer.local import LocalTrainer


class Unchecked:
    """Stands where the self-checks do, and checks nothing."""

    async def sampled(self, *_: Any) -> None:
        return None

    def trained(self, *_: Any) -> None:
        return None

    def published(self, *_: Any) -> None:
        return None


class Silent:
    """A view that shows nothing."""

    def start(self, *_: Any) -> None:
        return None

    evaluation = step = message = finish = start


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a run: ``fault`` is the error that ended it early, None where it went through."""

    name: str
    seconds: float
    fault: str | None


def folder_of(scene: Scene, root: Path) -> Path:
    """The run directory of a scene."""
    return root / FOLDER / scene.name


def made(scene: Scene, root: Path) -> Made | None:
    """What became of a run that was made before; None where it was not, or not to its end."""
    note = root / FOLDER / "made" / f"{scene.name}.json"
    return Made(**json.loads(note.read_text(encoding="utf-8"))) if note.exists() else None


def make(scene: Scene, root: Path) -> Made:
    """Train the run, unless it is there already. A fault that ends it early is a result as well."""
    if (done := made(scene, root)) is not None:
        return done
    folder = folder_of(scene, root).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    torch.set_num_threads(1)
    began, fault = time.perf_counter(), None
    try:
        with contextlib.chdir(root):  # recipes name the benchmark's models and files from there
            _train(scene, folder)
    except TrimtabError as error:
        fault = f"{type(error).__name__}: {error}"
    done = Made(scene.name, round(time.perf_counter() - began, 1), fault)
    note = root / FOLDER / "made" / f"{scene.name}.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"name": done.name, "seconds": done.seconds, "fault": done.fault}) + "\n")
    return done


def _train(scene: Scene, folder: Path) -> None:
    run = run_from_dict(scene.settings())
    model = load_model(run.model.path, device=run.model.device, dtype=run.model.dtype)
    rubric = build_rubric(run.reward, ROOT)
    found = load_prompts(run.data, model, run.sampling.max_new_tokens)
    unusable = {bad.prompt_id for bad in rubric.self_check([*found.train, *found.held_out])}
    found = found.without(unusable)
    prompts = tuple(scene.variant.injection.prompts(found.train, model))
    algorithm = scene.variant.injection.algorithm(run.build_algorithm())
    trainer = _trainer(scene, run, model)
    state = LoopState(
        PromptCursor(prompts, run.run.seed),
        PromptMemory(run.data.memory),
        held_out=fingerprint(found.held_out),
    )
    lines = [*trainer.describe().splitlines(), *opening_lines(run), *found.lines()]
    record = RunRecord.create(
        folder,
        run=run_to_dict(run),
        seeds={"run": run.run.seed, "data": run.data.seed},
        facts={"opening": lines},
        config=run.record,
    )
    silent: Any = Silent()
    with record:
        record.tokenizer(model.tokenizer)
        machines = Machines(
            scene.variant.injection.engine(model),
            scene.variant.injection.trainer(trainer),
            rubric,
            record,
            silent,
            found.held_out,
        )
        asyncio.run(_drive(run, algorithm, machines, state))
        record.finish(_summary(algorithm, state), state.counters.step - 1)


def _trainer(scene: Scene, run: Run, model: LoadedModel) -> LocalTrainer:
    needs = run.build_algorithm().needs
    updates = run.run.steps * run.trainer.updates_per_step * run.trainer.epochs
    temperature = scene.variant.injection.trained_at or run.sampling.temperature
    return LocalTrainer(
        model,
        temperature=temperature,
        config=run.trainer,
        reference=load_model(run.model.path) if "ref_logprobs_T" in needs else None,
        critic="values_T" in needs,
        seed=run.run.seed,
        total_updates=updates - (run.trainer.critic_warmup_updates if "values_T" in needs else 0),
        exact_sampler=True,
    )


async def _drive(run: Run, algorithm: Algorithm, machines: Machines, state: LoopState) -> None:
    unchecked: Any = Unchecked()
    await stages.sync(machines.trainer, machines.engine)
    await evaluate_policy(run, machines, state, "start")
    while state.counters.step < run.run.steps:
        await train_step(run, algorithm, machines, state, unchecked)
        done = state.counters.step
        if run.evaluation.every and done % run.evaluation.every == 0 and done < run.run.steps:
            await evaluate_policy(run, machines, state, f"step {done}")
    await evaluate_policy(run, machines, state, "final")


def _summary(algorithm: Algorithm, state: LoopState) -> Summary:
    return Summary(
        algorithm=algorithm.name,
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
