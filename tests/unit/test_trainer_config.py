"""The [trainer] table: what it refuses, and what the learning rate does over a run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest
import torch

from tests.tiny import tiny_model
from tests.training import ragged_batch
from trimtab.errors import SettingError
from trimtab.trainer import TrainerConfig
from trimtab.trainer.local import LocalTrainer


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": -1.0}, "trainer.learning_rate must be a number >= 0"),
        ({"learning_rate": float("nan")}, "trainer.learning_rate"),
        ({"updates_per_step": 0}, "trainer.updates_per_step must be >= 1"),
        ({"max_grad_norm": 0.0}, "trainer.max_grad_norm must be > 0"),
        ({"betas": (0.9, 1.0)}, r"trainer.betas must both be in \[0, 1\)"),
        ({"schedule": "linaer"}, "did you mean 'linear'"),
        ({"critic": "trunk"}, "known: head, model"),
        ({"old_logprobs": "samplr"}, "did you mean 'sampler'"),
        ({"critic_warmup_updates": -1}, "trainer.critic_warmup_updates must be >= 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(SettingError, match=message):
        TrainerConfig(**settings)


def rates(total: int, **settings) -> list[float]:
    config = TrainerConfig(**settings)
    return [round(config.rate_factor(done, total), 6) for done in range(total + 1)]


def test_schedules_rise_during_warm_up_and_end_at_zero():
    assert rates(4) == [1.0] * 5
    assert rates(6, warmup_updates=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]
    assert rates(4, schedule="linear") == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert rates(6, schedule="linear", warmup_updates=2) == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert rates(4, schedule="cosine") == [1.0, 0.853553, 0.5, 0.146447, 0.0]
    assert TrainerConfig(schedule="linear").rate_factor(9, 4) == 0.0


def test_a_falling_schedule_needs_the_length_of_the_run():
    with pytest.raises(SettingError, match="total_updates"):
        LocalTrainer(tiny_model(), temperature=1.0, config=TrainerConfig(schedule="linear"))


def test_where_old_logprobs_come_from():
    batch = ragged_batch(40)
    for where, exact_sampler, autocast, taken in (
        ("auto", True, False, True),
        ("auto", False, False, False),
        ("auto", True, True, False),
        ("sampler", False, True, True),
        ("recompute", True, False, False),
    ):
        trainer = LocalTrainer(
            tiny_model(),
            temperature=1.0,
            config=TrainerConfig(old_logprobs=where, autocast=autocast),
            exact_sampler=exact_sampler,
        )
        old = asyncio.run(trainer.annotate(batch, frozenset({"old_logprobs_T"}))).old_logprobs_T
        assert torch.equal(old, batch.rollout_logprobs_T) == taken, (where, exact_sampler, autocast)


def test_describe_has_one_line_an_owner():
    config = TrainerConfig(learning_rate=1e-4, critic_learning_rate=3e-4, schedule="cosine", warmup_updates=5)
    model = tiny_model()
    trainer = LocalTrainer(model, temperature=1.0, config=config, critic=True, total_updates=10)
    policy, critic = trainer.describe().splitlines()
    assert policy.startswith(f"policy: {sum(p.numel() for p in model.module.parameters()):,} parameters in ")
    assert "learning rate 0.0001 cosine after 5 warm-up updates" in policy
    assert critic.startswith("critic: 33 parameters in 2 tensors, learning rate 0.0003 cosine")
    assert critic.endswith("the run's first 10 updates train it alone")
