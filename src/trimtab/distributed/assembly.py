"""The workers of a run put together: a session of Ray, engines, trainer ranks, and a watchdog over them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from trimtab.config import Run
from trimtab.config.arguments import vllm_length
from trimtab.distributed.cluster import Cluster, Places
from trimtab.distributed.crew import Crew
from trimtab.distributed.notices import Notices, Recording, Watching
from trimtab.distributed.pool import EnginePool
from trimtab.distributed.ranks import RayTrainer
from trimtab.distributed.specs import EngineSpec, LocalSpec, RankSpec, VllmSpec
from trimtab.distributed.supervision import Watchdog
from trimtab.distributed.vllm_options import limit_of
from trimtab.distributed.workers import Worker
from trimtab.errors import SettingError
from trimtab.models import LoadedModel
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer


class Assembly:
    """Everything of a run that lives in other processes. A context: on leaving it all of it is ended.

    engine_spec: how to build an engine, instead of what the run says; for engines of one's own.
    Raises: SettingError when the cluster has no room, or a GPU would be used twice.
    """

    def __init__(self, run: Run, *, engine_spec: EngineSpec | None = None) -> None:
        self.run, self.config = run, run.cluster
        self.notices = Notices()
        self.cluster = Cluster(self.config)
        self.device = "cuda" if self.cluster.gpus and run.model.device != "cpu" else "cpu"
        self.engine_spec = engine_spec or self._usual_spec()
        self.pool: EnginePool | None = None
        self.ranks: RayTrainer | None = None
        self._rank_places: Places | None = None
        self._losses = 0

    async def start_ranks(self) -> RayTrainer:
        """The trainer's ranks, met and with the model loaded."""
        if self._rank_places is None:
            need = self.cluster.need(self.device)
            self._rank_places = self.cluster.reserve(self.config.trainers, need, "PACK")
        ranks = RayTrainer(RankSpec(self.run, self.device), self._rank_places, self.config, self.notices)
        self.ranks = ranks
        with self._watch():
            await ranks.assemble()
        return ranks

    def may_renew_ranks(self) -> bool:
        """Whether lost ranks may be started once more."""
        return self.ranks is not None and self._losses < self.config.restarts

    async def renew_ranks(self) -> RayTrainer:
        """New ranks in the places of the old ones, which are ended where they still are."""
        self._losses += 1
        if self.ranks is not None:
            self.ranks.close()
        return await self.start_ranks()

    async def start_pool(self, model: LoadedModel, trainer: Trainer) -> EnginePool:
        """The engines, ready to be given weights by ``trainer``."""
        if self.device == "cuda" and not self.config.trainers:
            raise SettingError(
                "cluster.trainers is 0, so this process would train on a GPU that an engine is given too; "
                "set cluster.trainers to 1 or more, so that every GPU has one owner"
            )
        if self.config.transfer == "nccl" and self.device != "cuda":
            raise SettingError(
                'cluster.transfer is "nccl" but the run is not on GPUs; set it to "gloo", or look at '
                "model.device and at what GPUs Ray sees"
            )
        need = self.cluster.need(self.device, self.config.vllm.tensor_parallel)
        places = self.cluster.reserve(self.config.engines, need, "SPREAD")
        crew = Crew(self.engine_spec, places, self.config, self.notices)
        room = vllm_length(self.run) if isinstance(self.engine_spec, VllmSpec) else None
        context = min(model.context, room or model.context)
        self.pool = EnginePool(
            crew,
            self.engine_spec,
            self.config,
            context=context,
            unchanged=self._unchanged(trainer),
            limit=limit_of(context, model, self.config.vllm),
        )
        with self._watch():
            await crew.assemble()
        return self.pool

    def workers(self) -> list[Worker]:
        """All workers as they are now."""
        found = [] if self.ranks is None else list(self.ranks.workers)
        return found + ([] if self.pool is None else list(self.pool.crew.workers))

    def lines(self) -> list[str]:
        """Who runs where, for people."""
        return [f"{worker}" for worker in self.workers()]

    def facts(self) -> dict[str, Any]:
        """Who runs where, for run.json."""
        workers = [
            {"worker": w.name, "process": w.about.pid, "address": w.about.address, "node": w.about.node}
            for w in self.workers()
            if w.about is not None
        ]
        return {"workers": workers, "nodes": self.cluster.nodes()}

    @contextlib.contextmanager
    def watched(self, record: Recording, view: Watching) -> Iterator[None]:
        """While the block runs, what happens to the workers is told and nothing stands still unnoticed.

        Raises: RunError where the watchdog had to interrupt the driver itself.
        """
        self.notices.attach(record, view)
        try:
            with self._watch():
                yield
        finally:
            self.notices.detach()

    def close(self) -> None:
        """End all workers, and Ray where it was started for them."""
        if self.pool is not None:
            self.pool.close()
        if self.ranks is not None:
            self.ranks.close()
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        watchdog = Watchdog(self.workers, self.config, self.notices)
        watchdog.start()
        try:
            yield
        except KeyboardInterrupt:
            if watchdog.verdict is not None:
                raise watchdog.verdict from None
            raise
        finally:
            watchdog.close()

    def _usual_spec(self) -> EngineSpec:
        return VllmSpec(self.run) if self.config.engine == "vllm" else LocalSpec(self.run, self.device)

    def _unchanged(self, trainer: Trainer) -> Any:
        if isinstance(trainer, RayTrainer):
            return lambda version: self.ranks is not None and self.ranks.unchanged(version)
        assert isinstance(trainer, LocalTrainer)
        return lambda version: trainer.version == version and not trainer.updater.counts.changed
