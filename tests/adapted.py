"""Trainers of adapters for tests, with settings that hide nothing."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import torch

from tests.tiny import tiny_model
from tests.trainers import TEMPERATURE
from trimtab.models import LoadedModel
from trimtab.models.lora import (
    LoraConfig,
)
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer

LORA = LoraConfig(rank=3, alpha=6.0)


def trainer_of(model: LoadedModel, lora: LoraConfig | None = LORA, **settings: Any) -> LocalTrainer:
    plain = {"learning_rate": 1e-2, "max_grad_norm": float("inf"), "fast": "never"}
    config = TrainerConfig(**{**plain, **settings})
    return LocalTrainer(model, temperature=TEMPERATURE, config=config, seed=5, lora=lora)


def stir(trainer: LocalTrainer) -> None:
    """B away from its 0, so that A too has a gradient."""
    random = torch.Generator().manual_seed(1)
    policy = trainer.owners[0]
    with torch.no_grad():
        for name, master in policy.masters.items():
            if name.endswith("lora_B"):
                master.copy_(0.1 * torch.randn(master.shape, generator=random))
    policy.spread()


def lowered() -> LoadedModel:
    model = tiny_model()
    for parameter in model.module.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model
