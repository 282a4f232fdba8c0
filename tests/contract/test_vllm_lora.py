"""A policy with adapters in a running vLLM engine: their products arrive in the base's weights."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from tests.contract.test_engines import sample
from tests.contract.test_local_engine import LONG, pairs
from tests.trainers import annotate, batch_for, held_by, update
from tests.vllm_engines import largest_difference, long_draws, served_model
from trimtab.models.lora import LoraConfig
from trimtab.rollout.checks import check_ratio, check_weights_arrived
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer

pytestmark = pytest.mark.vllm

LIMIT = 1e-4


def adapted() -> LocalTrainer:
    config = TrainerConfig(learning_rate=3e-2)
    return LocalTrainer(served_model(), temperature=1.0, config=config, lora=LoraConfig(rank=4, alpha=8.0))


def require_newest(engine: Any, trainer: LocalTrainer) -> None:
    groups = sample(engine, long_draws(), n=2, sampling=LONG)
    both = pairs(held_by(trainer), groups, 1.0)
    check_weights_arrived(*both, dtype=torch.float32).require()
    assert largest_difference(*both) <= LIMIT


def test_a_probe_agrees_on_both_sides_after_each_update_of_adapters(vllm_engine):
    trainer = adapted()
    batch = annotate(trainer, batch_for(trainer.model))
    before = sample(vllm_engine, long_draws(), n=2, sampling=LONG)
    assert largest_difference(*pairs(held_by(trainer), before, 1.0)) <= LIMIT, "B is 0: the base"
    for version in (1, 2):
        assert update(trainer, batch).applied
        source, published = asyncio.run(trainer.publish())
        assert published == version
        asyncio.run(vllm_engine.load_weights(source, published))
        require_newest(vllm_engine, trainer)
    assert not check_ratio(*pairs(held_by(trainer), before, 1.0), dtype=torch.float32).passed
