"""The trainer for one process: a Hugging Face model on the CPU or one GPU."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

from trimtab.models import LoadedModel, export_model
from trimtab.models.adapter_files import write_adapter
from trimtab.models.lora import LoraConfig, Parameters, adapter_weights
from trimtab.objectives.objective import Objective
from trimtab.trainer.annotate import annotated
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.decoder import is_wanted
from trimtab.trainer.forward import Asked
from trimtab.trainer.optimizer import Optimizer
from trimtab.trainer.parts import BaseOf, owners_of, parts_of, require_total, takes_own_pass, takes_sampler
from trimtab.trainer.state import read_state, write_state
from trimtab.trainer.together import Alone
from trimtab.trainer.updating import Updater
from trimtab.types import Batch, StepReport, WeightSource


class LocalTrainer:
    """Implements ``Trainer`` on one device. Updates ``model`` in place; a sampler may share the module.

    temperature: the sampler's; all log-probabilities are taken at it.
    reference: the model of the KL terms, where an algorithm has one. With adapters it may be left out: it is
        then the base.
    critic: whether there is one; ``config.critic`` says which kind. ``seed`` draws its first weights.
    total_updates: updates of the whole run, which a falling schedule needs.
    exact_sampler: the sampler computes these very weights in float32, so that its log-probabilities are
        this trainer's up to rounding (see ``TrainerConfig.old_logprobs``).
    lora: put adapters into ``model`` and train these alone; its own weights then never change.

    Raises: SettingError for settings that cannot work with this model.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
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
        self.takes_sampler = takes_sampler(config, model.dtype, exact_sampler=exact_sampler)
        self.old_from_update = takes_own_pass(config, from_sampler=self.takes_sampler)
        parts = parts_of(
            model,
            temperature=temperature,
            config=config,
            reference=reference,
            critic=critic,
            seed=seed,
            fast=is_wanted(model, config.fast),
            lora=lora,
        )
        self.critic, self.reader, self.adapters = parts.critic, parts.reader, parts.adapters
        self.reference = parts.reference
        if self.adapters is not None and parts.reference is None:
            self.reference = BaseOf(self.reader, model.module)
        self.owners = owners_of(model, self.critic, config)
        self.optimizer = Optimizer(self.owners, config)
        self.updater = Updater(
            config=config,
            device=model.device,
            reader=self.reader,
            has_critic=critic,
            owners=self.owners,
            optimizer=self.optimizer,
            total_updates=total_updates,
            together=Alone(),
        )
        self.version = 0

    def describe(self) -> str:
        """What is optimised and how, one line an owner."""
        return self.optimizer.describe(self.config)

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """See ``Trainer``. With ``values_T`` also ``bootstrap_S``, the value after each last token.

        Raises: SettingError for a column that this trainer cannot fill.
        """
        return annotated(
            batch,
            columns,
            self.reader,
            self.reference,
            from_sampler=self.takes_sampler,
            max_tokens=self.config.tokens_per_micro_batch,
        )

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``Trainer``. Weights that the batch has already are kept.

        A batch whose tokens are all masked, or whose gradient is exactly zero, makes no optimizer step.

        Raises: RunError when a loss or gradient is not finite (beyond ``max_nonfinite_skips`` in a
        row), when a weight is not finite after the update, or when no weight at all got a gradient.
        """
        return self.updater.update(batch, objective)

    async def publish(self) -> tuple[WeightSource, int]:
        """The live weights and their version, which rises only when they have changed since last time.

        Of a policy with adapters: the weights with their products, under the names of the base.
        So a resumed run's first sync gives the version that the interrupted run had.
        """
        self.version += self.updater.published()
        return Parameters(self.model.module), self.version

    async def save(self, path: Path) -> None:
        """Write all state below ``path``, and ``path/model``, which transformers can load; of a policy with
        adapters ``path/adapter`` instead, which peft can load.

        Raises: RunError when a weight is not finite; such weights are never saved.
        """
        device, counts = self.model.device, self.updater.counts
        write_state(path, self.owners, self.optimizer, counts, self.version, device, adapters=self.adapters)
        module = self.model.module
        if self.adapters is not None:
            write_adapter(path / "adapter", self.adapters, module, adapter_weights(module))
        else:
            export_model(module, self.model.tokenizer, path / "model")

    async def load(self, path: Path) -> None:
        """Take back what ``save`` wrote, in place and to the bit.

        Raises: RunError when it belongs to another model or critic, or to adapters on another base.
        """
        found = read_state(path, self.owners, self.optimizer, self.model.device, adapters=self.adapters)
        self.updater.counts, self.version = found

    def asked(self, objective: Objective) -> Asked:
        """What a pass of an update by this objective is for."""
        return self.updater.asked(objective)
