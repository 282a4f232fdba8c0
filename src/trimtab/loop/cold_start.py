"""A cold start: imitate demonstrations before reinforcement learning, with the same trainer.

    loss = -sum_T log pi(y_t | x, y_<t) / T        over the response tokens of an update, end tokens included

It gives a model the form of an answer and a first skill. Imperfect demonstrations are welcome: what they
get right often enough, reinforcement learning can sharpen. Without a base model a tiny one is made from
nothing; the defaults of ``ColdStart`` and ``TinyModel`` are those of the model in the package.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.data.prompts import DataConfig, load_prompts
from trimtab.data.tasks import TASKS
from trimtab.data.template import Template
from trimtab.errors import SettingError
from trimtab.evaluation.evaluator import Evaluation, evaluate
from trimtab.loop.demonstrations import batches, endless, file_lessons, task_lessons
from trimtab.loop.fresh import TinyModel, fresh_model
from trimtab.models import LoadedModel, export_model, load_model
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch, ModelOutput, Trace

CARD = "cold_start.json"
WEIGHTS = "model.safetensors"
LOSS_WINDOW = 50
"""Updates over which a loss is averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """Settings of a cold start.

    task: a built-in task, whose own demonstrations are imitated, or else demonstrations: a .jsonl, .json or
        .parquet file with rows ``{"prompt": text or "messages": list, "response": text}``.
    template: how the prompts of a file are written; ``Template(form="chat")`` makes each the user's message.
    model: the model to start from; None makes a tiny one of the shape ``fresh`` from nothing.
    updates, batch: optimizer steps, and demonstrations in each.
    learning_rate, warmup_updates: AdamW's rate rises over the warm-up and then falls to 0 (cosine).
    measured: held-out prompts of the task on which the result is measured; 0 measures nothing.
    samples, max_new_tokens: answers to each of them, and their longest length.
    seed: decides weights, demonstrations and their order.
    """

    task: str | None = None
    demonstrations: str | None = None
    template: Template = Template()
    model: str | None = None
    fresh: TinyModel = TinyModel()
    updates: int = 4000
    batch: int = 64
    learning_rate: float = 3e-3
    warmup_updates: int = 50
    weight_decay: float = 0.01
    measured: int = 512
    samples: int = 8
    max_new_tokens: int = 56
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if (self.task is None) == (self.demonstrations is None):
            raise SettingError("a cold start needs either a task or a file of demonstrations, and not both")
        for name in ("updates", "batch", "samples", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} of a cold start must be >= 1, got {getattr(self, name)}")
        self.trainer()

    def trainer(self) -> TrainerConfig:
        """The same optimizer that reinforcement learning uses."""
        return TrainerConfig(
            learning_rate=self.learning_rate,
            schedule="cosine",
            warmup_updates=self.warmup_updates,
            weight_decay=self.weight_decay,
            betas=(0.9, 0.98),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After ``update`` of ``updates``: mean loss (nats a token) of the last updates, tokens, seconds."""

    update: int
    updates: int
    loss: float
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStartSummary:
    """What a cold start made; stored as ``cold_start.json`` beside the weights.

    ``losses`` are means over windows of updates, first to last. ``evaluation`` is on held-out prompts of
    the task, absent where nothing was measured. ``sha256`` is of the weights' file.
    """

    settings: dict[str, Any]
    parameters: int
    losses: tuple[float, ...]
    tokens: int
    seconds: float
    sha256: str
    made_with: dict[str, str]
    evaluation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imitation:
    """The term -log pi(token)."""

    name: str = "imitation"
    needs: frozenset[str] = frozenset()

    def __call__(self, out: ModelOutput, batch: Batch, /) -> tuple[Tensor, Trace]:
        del batch
        return -out.logprobs_T, Trace()


def cold_start(
    settings: ColdStart, folder: Path, progress: Callable[[Progress], None] = lambda _: None
) -> ColdStartSummary:
    """Imitate, measure, and write the model with its card to ``folder``, which must not be there yet.

    The same settings on the same machine with the same number of threads give the same weights, bit for bit.
    Raises SettingError and DataError before anything is trained.
    """
    if folder.exists():
        raise SettingError(f"{folder} is already there; remove it first, or name another folder")
    model = _start_model(settings)
    began = time.perf_counter()
    losses, tokens = asyncio.run(_imitate(settings, model, progress))
    seconds = time.perf_counter() - began
    measured = asyncio.run(_measure(settings, model))
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    export_model(model.module, model.tokenizer, aside)
    summary = ColdStartSummary(
        settings=asdict(settings),
        parameters=model.module.num_parameters(),
        losses=tuple(losses),
        tokens=tokens,
        seconds=seconds,
        sha256=weights_hash(aside),
        made_with=_made_with(),
        evaluation=measured,
    )
    (aside / CARD).write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
    aside.rename(folder)
    return summary


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights' file of a model folder."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def _start_model(settings: ColdStart) -> LoadedModel:
    if settings.model is None:
        return fresh_model(settings.fresh, settings.seed)
    return load_model(settings.model, device=settings.device, dtype=settings.dtype)


def _batches(settings: ColdStart, model: LoadedModel) -> Iterator[Batch]:
    count = settings.updates * settings.batch
    if settings.task is not None:
        lessons = task_lessons(settings.task, count, settings.seed, model)
    else:
        assert settings.demonstrations is not None, "checked by ColdStart"
        read = file_lessons(settings.demonstrations, settings.template, model)
        lessons = endless(read, settings.seed)
    return batches(lessons, settings.batch, settings.seed)


async def _imitate(
    settings: ColdStart, model: LoadedModel, progress: Callable[[Progress], None]
) -> tuple[list[float], int]:
    """Train; the mean loss of each window of updates, and the response tokens seen."""
    trainer = LocalTrainer(
        model, temperature=1.0, config=settings.trainer(), seed=settings.seed, total_updates=settings.updates
    )
    objective = Objective(terms=((1.0, Imitation()),), aggregate=token_mean)
    began = time.perf_counter()
    means: list[float] = []
    window: list[float] = []
    tokens = 0
    for update, batch in zip(range(1, settings.updates + 1), _batches(settings, model), strict=False):
        report = await trainer.update(batch, objective)
        window.append(report.loss)
        tokens += batch.num_tokens
        if len(window) == LOSS_WINDOW or update == settings.updates:
            means.append(sum(window) / len(window))
            window = []
            seconds = time.perf_counter() - began
            progress(
                Progress(
                    update=update, updates=settings.updates, loss=means[-1], tokens=tokens, seconds=seconds
                )
            )
    return means, tokens


async def _measure(settings: ColdStart, model: LoadedModel) -> dict[str, Any]:
    """pass@1 and pass@k on held-out prompts of the task, in the form of summary.json; {} without a task."""
    if settings.task is None or not settings.measured:
        return {}
    source = DataConfig(task=settings.task, train_prompts=1, held_out=settings.measured)
    prompts = load_prompts(source, model, settings.max_new_tokens).held_out
    result: Evaluation = await evaluate(
        LocalEngine(model),
        _rubric(settings.task),
        prompts,
        samples=settings.samples,
        sampling=Sampling(max_new_tokens=settings.max_new_tokens),
        seed=settings.seed,
    )
    return result.summary(sorted({1, settings.samples}))


def _rubric(name: str) -> Rubric:
    task = TASKS[name]
    return build_rubric(RewardConfig(graders=(GraderConfig(name=task.grader, options=task.grader_options),)))


def _made_with() -> dict[str, str]:
    from transformers import __version__ as transformers_version

    return {
        "torch": torch.__version__,
        "transformers": transformers_version,
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }
