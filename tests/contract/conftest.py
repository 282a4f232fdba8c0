"""Fixtures of the contracts: ``build`` makes a trainer of each kind, ``critic`` names a kind of critic,
``vllm_engine`` is the one engine of the session that vLLM runs."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.trainers import RAY, TEMPERATURE, TRAINERS
from tests.vllm_engines import served_model, start_engine
from trimtab.models import LoadedModel
from trimtab.trainer.config import TrainerConfig


@pytest.fixture(scope="package")
def ray_kind() -> Iterator[Callable[..., Any]]:
    """Makes trainers over ranks that are actors; these are started once."""
    from tests.ray_trainers import Shared, ray_ranks

    with ray_ranks() as ranks:
        yield lambda model, **settings: Shared(ranks, model, **settings)


@pytest.fixture(params=[*TRAINERS, pytest.param(RAY, marks=pytest.mark.ray)])
def build(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a trainer of the kind under test; ``critic="head"`` or "model" gives it one."""
    kind = request.getfixturevalue("ray_kind") if request.param == RAY else TRAINERS[request.param]

    def make(model: LoadedModel, *, reference=None, total_updates=None, lora=None, **settings):
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
            lora=lora,
        )

    yield make
    if hasattr(kind, "close"):
        kind.close()


@pytest.fixture(params=["head", "model"])
def critic(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def vllm_model() -> LoadedModel:
    """The model that ``vllm_engine`` serves, as the trainer holds it: not to be changed."""
    return served_model()


@pytest.fixture(scope="session")
def shared_vllm(vllm_model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    engine = start_engine(tmp_path_factory.mktemp("served"), vllm_model)
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
def vllm_engine(shared_vllm: Any, vllm_model: LoadedModel) -> Any:
    """The session's engine, with its first weights as version 0 again."""
    if shared_vllm.version != 0:
        asyncio.run(shared_vllm.load_weights(list(vllm_model.module.named_parameters()), 0))
    return shared_vllm
