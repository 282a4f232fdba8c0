"""Fixtures of the trainers' contract: ``build`` makes one of each kind, ``critic`` names a kind of critic."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.trainers import TEMPERATURE, TRAINERS
from trimtab.models import LoadedModel
from trimtab.trainer.config import TrainerConfig


@pytest.fixture(params=TRAINERS)
def build(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a trainer of the kind under test; ``critic="head"`` or "model" gives it one."""
    kind = TRAINERS[request.param]

    def make(model: LoadedModel, *, reference=None, total_updates=None, **settings):
        plain = {"learning_rate": 1e-3, "max_grad_norm": float("inf"), "critic_warmup_updates": 0}
        config = TrainerConfig(**{**plain, **settings})
        return kind(
            model,
            temperature=TEMPERATURE,
            config=config,
            reference=reference,
            critic="critic" in settings,
            seed=5,
            total_updates=total_updates,
        )

    return make


@pytest.fixture(params=["head", "model"])
def critic(request: pytest.FixtureRequest) -> str:
    return request.param
