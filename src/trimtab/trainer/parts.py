"""What every trainer is built of, however it holds its weights: adapters, readers, critic, owners, and where
old log-probabilities come from.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trimtab.errors import SettingError
from trimtab.models import LoadedModel
from trimtab.models.lora import Adapters, LoraConfig, adapters_off, add_adapters, has_adapters
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.critic import Critic, value_head, value_model
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.kernels import require_kernels
from trimtab.trainer.optimizer import Owned, Part, all_of
from trimtab.trainer.sharing import Cost
from trimtab.trainer.together import Reads
from trimtab.types import Batch, ModelOutput


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Of a trainer: the policy with its critic as they are read, and the reference; adapters where only these
    are trained.
    """

    critic: Critic | None
    reader: Reader
    reference: Reader | None
    adapters: Adapters | None


@dataclass(frozen=True, slots=True, eq=False)
class BaseOf:
    """The base of a policy with adapters, read by the policy's reader: a reference that costs no memory."""

    policy: Reads
    module: nn.Module

    @property
    def cost(self) -> Cost | None:
        return self.policy.cost

    @property
    def routers(self) -> Sequence[nn.Module]:
        return self.policy.routers

    def __call__(self, batch: Batch, asked: Asked) -> tuple[ModelOutput, Tensor | None]:
        with adapters_off(self.module):
            return self.policy(batch, asked)


def parts_of(
    model: LoadedModel,
    *,
    temperature: float,
    config: TrainerConfig,
    reference: LoadedModel | None,
    critic: bool,
    seed: int,
    fast: bool = False,
    lora: LoraConfig | None = None,
) -> Parts:
    """Readers of these models, with a new critic where one is asked for. Arguments as of ``LocalTrainer``.

    fast: as of ``Reader``, not for models that will be sharded. A critic is made before the policy gets its
    adapters, and is trained whole.

    Raises: SettingError where ``config.kernels`` cannot read one of the models, or ``lora`` names layers that
    the policy does not have.
    """
    for read in (model, *([reference] if reference else [])):
        require_kernels(read, config.kernels, autocast=config.autocast)
    own = _critic(model, config, seed) if critic else None
    adapters = None if lora is None else add_adapters(model.module, lora, seed=seed)
    share = config.share_prompts == "auto"
    reader = Reader(
        model,
        temperature=temperature,
        critic=own,
        autocast=config.autocast,
        recompute_layers=config.gradient_checkpointing,
        share_prompts=share,
        fast=fast,
        kernels=config.kernels,
    )
    other = (
        Reader(
            reference,
            temperature=temperature,
            autocast=config.autocast,
            share_prompts=share,
            fast=fast,
            kernels=config.kernels,
        )
        if reference
        else None
    )
    return Parts(critic=own, reader=reader, reference=other, adapters=adapters)


def owners_of(
    model: LoadedModel, critic: Critic | None, config: TrainerConfig, part: Part = all_of
) -> list[Owned]:
    """Policy and, where there is one, critic, each with its learning rate."""
    adapted = has_adapters(model.module)
    owners = [Owned.of("policy", model.module, config.learning_rate, part, trained_only=adapted)]
    if critic is not None:
        owners.append(Owned.of("critic", critic, config.critic_learning_rate, part))
    return owners


def takes_sampler(config: TrainerConfig, dtype: torch.dtype, *, exact_sampler: bool) -> bool:
    """Whether old log-probabilities are the sampler's own (see ``TrainerConfig.old_logprobs``)."""
    return config.old_logprobs == "sampler" or (
        config.old_logprobs == "auto" and exact_sampler and dtype is torch.float32 and not config.autocast
    )


def takes_own_pass(config: TrainerConfig, *, from_sampler: bool) -> bool:
    """Whether an update may take them from its own pass (see ``Trainer.old_from_update``)."""
    return config.old_logprobs == "auto" and not (from_sampler or config.skip_silent)


def require_total(config: TrainerConfig, total_updates: int | None) -> None:
    """Raises SettingError where the schedule needs the number of all updates and does not have it."""
    if config.schedule != "constant" and total_updates is None:
        raise SettingError(
            f"trainer.schedule {config.schedule!r} needs the number of updates of the whole run; "
            "give total_updates, or take the constant schedule"
        )


def _critic(model: LoadedModel, config: TrainerConfig, seed: int) -> Critic:
    if config.critic == "model":
        return value_model(model, seed=seed)
    return value_head(model, detached=config.critic_detached, seed=seed)
