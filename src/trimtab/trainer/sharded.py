"""The trainer for several ranks: parameters, gradients and optimizer state in shards (FSDP2), one a process.

Every rank makes a ``ShardedTrainer`` with the same arguments and then calls the same methods with the same
arguments, the whole batch among them; each gets the same report. See docs/fsdp2.md.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from trimtab.models import LoadedModel
from trimtab.models.lora import LoraConfig
from trimtab.objectives.objective import Objective
from trimtab.trainer.annotate import annotated
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.optimizer import Optimizer
from trimtab.trainer.parts import BaseOf, owners_of, parts_of, require_total, takes_own_pass, takes_sampler
from trimtab.trainer.sharded_group import Group
from trimtab.trainer.sharded_model import Gathered, InRoot, Root, local_of, settle, shard
from trimtab.trainer.sharded_ranks import Ranks
from trimtab.trainer.sharded_state import export_adapters, export_whole, skeleton_of
from trimtab.trainer.state import read_state, write_state
from trimtab.trainer.updating import Updater
from trimtab.types import Batch, StepReport, WeightSource


class ShardedTrainer:
    """Implements ``Trainer`` over the ranks of ``group``. Arguments as of ``LocalTrainer``, the same in each.

    The models are cut in place and cannot be sampled from any more. They may lie on the CPU and the group on
    GPUs: only shards then go there. What is trained has float32 shards, which the optimizer moves; a bfloat16
    model computes in bfloat16 all the same and is published so.

    Raises: SettingError for settings that cannot work with this model.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        group: Group,
        temperature: float,
        config: TrainerConfig,
        reference: LoadedModel | None = None,
        critic: bool = False,
        seed: int = 0,
        total_updates: int | None = None,
        exact_sampler: bool = False,
        lora: LoraConfig | None = None,
    ) -> None:
        require_total(config, total_updates)
        self.model = model
        self.config = config
        self.group = group
        self.ranks = Ranks(group)
        self.takes_sampler = takes_sampler(config, model.dtype, exact_sampler=exact_sampler)
        self.old_from_update = takes_own_pass(config, from_sampler=self.takes_sampler)
        parts = parts_of(
            model,
            temperature=temperature,
            config=config,
            reference=reference,
            critic=critic,
            seed=seed,
            lora=lora,
        )
        self.adapters = parts.adapters
        self.skeleton = skeleton_of(model.module)
        self.dtypes = {name: parameter.dtype for name, parameter in model.module.named_parameters()}
        modules: dict[str, nn.Module] = {"policy": model.module}
        self.critic = parts.critic
        if self.critic is not None:
            modules["critic"] = self.critic
        self.roots: list[Root] = []
        with group.watched("sharding the model"):
            apart = [] if self.critic is None else [self.critic.head]
            self.roots.append(shard(modules, group.mesh, apart=apart))
            self.reader = InRoot(parts.reader, self.roots[0])
            self.reference = None if self.adapters is None else BaseOf(self.reader, model.module)
            if parts.reference is not None:
                parts.reference.model.module.requires_grad_(False)
                self.roots.append(shard({"reference": parts.reference.model.module}, group.mesh))
                self.reference = InRoot(parts.reference, self.roots[1])
        self.owners = owners_of(model, self.critic, config, local_of)
        self.optimizer = Optimizer(self.owners, config)
        self.updater = Updater(
            config=config,
            device=group.device,
            reader=self.reader,
            has_critic=critic,
            owners=self.owners,
            optimizer=self.optimizer,
            total_updates=total_updates,
            together=self.ranks,
        )
        self.version = 0

    def describe(self) -> str:
        """What is optimised and how, one line an owner, and over how many ranks it is spread."""
        ranks = f"{self.group.size} rank{'s' if self.group.size > 1 else ''}"
        return f"{self.optimizer.describe(self.config)}\nsharded over {ranks} on {self.group.device.type}"

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """See ``LocalTrainer.annotate``. Raises: RunError naming a rank that is dead, hangs or failed."""
        with self._together("annotate"):
            return annotated(
                batch,
                columns,
                self.reader,
                self.reference,
                from_sampler=self.takes_sampler,
                max_tokens=self.config.tokens_per_micro_batch,
                together=self.ranks,
            )

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``LocalTrainer.update``. Raises: as there, in every rank alike; RunError naming a lost rank."""
        with self._together("update"):
            return self.updater.update(batch, objective)

    async def publish(self) -> tuple[WeightSource, int]:
        """The weights, gathered one by one while all ranks iterate; their version as of ``LocalTrainer``."""
        self.version += self.updater.published()
        return Gathered(self.model.module, self.dtypes, self.group), self.version

    async def save(self, path: Path) -> None:
        """Write all state below ``path``, each rank its shards, and what ``LocalTrainer.save`` writes beside.

        ``path`` is on a file system that all ranks see. All is written when it returns in any rank.

        Raises: RunError when a weight is not finite, or a rank cannot write.
        """
        with self._together("save"):
            counts, device = self.updater.counts, self.group.device
            owners, optimizer, adapters = self.owners, self.optimizer, self.adapters
            write_state(path, owners, optimizer, counts, self.version, device, self.ranks, adapters=adapters)
            if adapters is not None:
                export_adapters(adapters, self.model, self.dtypes, path / "adapter", self.ranks)
                return
            source = Gathered(self.model.module, self.dtypes)
            export_whole(source, self.skeleton, self.model, path / "model", self.ranks)

    async def load(self, path: Path) -> None:
        """Take back what any number of ranks, or a ``LocalTrainer``, wrote; to the bit.

        Raises: RunError when it belongs to another model or critic.
        """
        with self._together("load"):
            device, adapters = self.group.device, self.adapters
            found = read_state(path, self.owners, self.optimizer, device, self.ranks, adapters=adapters)
            self.updater.counts, self.version = found

    @contextmanager
    def _together(self, stage: str) -> Iterator[None]:
        with self.group.watched(stage):
            try:
                yield
            finally:
                for root in self.roots:
                    settle(root)
