"""Which engine and which trainer a run gets: the only file that chooses."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.config import Run
from trimtab.config.arguments import reference_path, trainer_arguments
from trimtab.errors import SettingError
from trimtab.loop.view import View
from trimtab.models import LoadedModel, choose_device, choose_dtype, load_model
from trimtab.record.writer import RunRecord
from trimtab.rollout.engine import RolloutEngine
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer

if TYPE_CHECKING:
    from trimtab.distributed.assembly import Assembly


class Plant:
    """The machines of a run, by its ``[cluster]`` table. Made by ``plant_of``.

    model: with its weights where this process trains or samples, else only what is to be known of it.
    assembly: the workers in other processes; None where there are none.
    """

    def __init__(self, model: LoadedModel, engine: RolloutEngine, trainer: Trainer, lines: list[str]) -> None:
        self.model, self.engine, self.trainer, self.lines = model, engine, trainer, lines
        self.assembly: Assembly | None = None

    def facts(self) -> dict[str, Any]:
        """Workers and nodes, for run.json."""
        return {} if self.assembly is None else self.assembly.facts()

    def watched(self, record: RunRecord, view: View) -> contextlib.AbstractContextManager[None]:
        """A watch over the workers while the loop runs, where there are any."""
        return contextlib.nullcontext() if self.assembly is None else self.assembly.watched(record, view)

    def load(self, checkpoint: Path) -> None:
        """Let the trainer take back a checkpoint."""
        asyncio.run(self.trainer.load(checkpoint))

    def renew(self) -> bool:
        """New trainer ranks for those that were lost, as at the start of a run; False where no more may be
        started.
        """
        if self.assembly is None or not self.assembly.may_renew_ranks():
            return False
        self.trainer = asyncio.run(self.assembly.renew_ranks())
        return True


@contextlib.contextmanager
def plant_of(run: Run) -> Iterator[Plant]:
    """The machines, ended when the block ends.

    Raises: SettingError for a table that contradicts itself or asks for what this machine has not.
    """
    cluster = run.cluster
    if not (cluster.engines or cluster.trainers):
        model = model_of(run)
        with _engine_here(run, model) as engine:
            yield Plant(model, engine, trainer_of(run, model), [])
        return
    if importlib.util.find_spec("ray") is None:
        raise SettingError(
            "cluster.engines or cluster.trainers asks for processes, which Ray starts, and the package ray "
            "is not installed; install trimtab[ray], or set both to 0"
        )
    from trimtab.distributed.assembly import Assembly

    with Assembly(run) as assembly:
        model = model_of(run)
        trainer: Trainer = asyncio.run(assembly.start_ranks()) if cluster.trainers else trainer_of(run, model)
        with contextlib.ExitStack() as stack:
            if cluster.engines:
                engine: RolloutEngine = asyncio.run(assembly.start_pool(model, trainer))
            else:
                engine = stack.enter_context(_engine_here(run, model))
            plant = Plant(model, engine, trainer, assembly.lines())
            plant.assembly = assembly
            yield plant


@contextlib.contextmanager
def sampler_of(run: Run, path: str) -> Iterator[tuple[LoadedModel, RolloutEngine, list[str]]]:
    """For an evaluation: what is to be known of the model at ``path``, an engine with its weights, and lines
    about where it runs. A run with several engines is evaluated by one.
    """
    there = dataclasses.replace(
        run,
        model=dataclasses.replace(run.model, path=path, lora=None),
        cluster=dataclasses.replace(run.cluster, engines=0, trainers=0, staleness=0),
    )
    if there.cluster.engine == "local":
        model = model_of(there)
        yield model, LocalEngine(model, fast=run.sampling.fast), []
        return
    model = _known(there)
    with _engine_here(there, model) as engine:
        yield model, engine, ["engine: vLLM"]


def model_of(run: Run) -> LoadedModel:
    """The model with its weights, or without where none of them is needed in this process."""
    cluster = run.cluster
    if cluster.trainers and (cluster.engines or cluster.engine == "vllm"):
        return _known(run)
    return load_model(run.model.path, device=run.model.device, dtype=run.model.dtype)


def trainer_of(run: Run, model: LoadedModel) -> LocalTrainer:
    """The trainer in this process, with a reference model or a critic only where the algorithm needs one."""
    path = reference_path(run)
    reference = None
    if path is not None:
        reference = load_model(path, device=run.model.device, dtype=run.model.dtype)
    return LocalTrainer(model, reference=reference, **trainer_arguments(run))


def _known(run: Run) -> LoadedModel:
    from trimtab.distributed.skeleton import load_skeleton

    return load_skeleton(run.model.path, choose_dtype(run.model.dtype, choose_device(run.model.device)))


@contextlib.contextmanager
def _engine_here(run: Run, model: LoadedModel) -> Iterator[RolloutEngine]:
    """The engine beside this process, or in it over ``model`` itself."""
    if run.cluster.engine == "local":
        yield LocalEngine(model, fast=run.sampling.fast)
        return
    from trimtab.distributed.specs import VllmSpec

    engine: Any = asyncio.run(VllmSpec(run).build())
    try:
        yield engine
    finally:
        asyncio.run(_closed(engine))


async def _closed(engine: Any) -> None:
    if (waiting := engine.close()) is not None:
        await waiting
