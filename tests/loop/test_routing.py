"""Routing agreement of a tiny mixture of experts, from the router's choices to the record."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.tiny import char_tokenizer, tiny_model
from tests.tiny_runs import tiny_run, train_silently
from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.models import LoadedModel, as_loaded, export_model
from trimtab.record.reader import RunReader
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.routing import UNKNOWN, agreement, routers


def tiny_experts() -> LoadedModel:
    """Two layers of four experts, two a token."""
    tokenizer = char_tokenizer()
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 32,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": 0.15,
    }
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = transformers.Qwen3MoeConfig(**sizes, **ids)
    torch.manual_seed(0)
    return as_loaded(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), tokenizer)


def test_agreement_by_hand():
    """Two layers of two experts: order does not matter; 3 of 4 kept is 0.75; unknown is no number."""
    old_T = torch.tensor([[[0, 1], [2, 3]], [[0, 1], [2, 3]], [[0, 1], [2, 3]], [[UNKNOWN] * 2] * 2])
    new_T = torch.tensor([[[1, 0], [2, 3]], [[0, 2], [3, 2]], [[2, 3], [0, 1]], [[0, 1], [2, 3]]])
    found_T = agreement(old_T, new_T)
    assert found_T[:3].tolist() == [1.0, 0.75, 0.0]
    assert bool(found_T[3].isnan())


@pytest.mark.parametrize(
    "config",
    [TrainerConfig(old_logprobs=old, tokens_per_micro_batch=40) for old in ("sampler", "recompute")],
    ids=lambda config: config.old_logprobs,
)
def test_experts_of_unchanged_weights_agree_and_those_of_another_router_do_not(config: TrainerConfig):
    model = tiny_experts()
    assert len(routers(model.module)) == 2
    trainer = LocalTrainer(model, temperature=1.0, config=config)
    batch = with_advantages(ragged_batch(model.vocab_size, prompts=(3, 2, 6)))
    batch = asyncio.run(trainer.annotate(batch, frozenset({"old_logprobs_T"})))
    old_T = batch.columns["old_experts_T"]
    assert old_T.shape == (batch.num_tokens, 2, 2)
    known_T = old_T[:, 0, 0] != UNKNOWN
    assert 0 < int(known_T.sum()) < batch.num_tokens, "no more than a micro-batch is looked at"
    first = asyncio.run(trainer.update(batch, POLICY)).trace.routing_T
    assert first is not None
    assert bool((first[known_T] == 1.0).all())
    assert bool(first[~known_T].isnan().all())
    with torch.no_grad():
        for router in routers(model.module):
            for weight in router.parameters():
                weight.neg_()
    second = asyncio.run(trainer.update(batch, POLICY)).trace.routing_T
    assert second is not None
    assert float(second[known_T].mean()) < 0.5, "the least wanted experts are now the most wanted"


def test_a_dense_model_pays_and_shows_nothing():
    model = tiny_model()
    trainer = LocalTrainer(model, temperature=1.0, config=TrainerConfig(old_logprobs="sampler"))
    batch = with_advantages(ragged_batch(model.vocab_size))
    batch = asyncio.run(trainer.annotate(batch, frozenset({"old_logprobs_T"})))
    assert "old_experts_T" not in batch.columns
    assert asyncio.run(trainer.update(batch, POLICY)).trace.routing_T is None


def test_a_run_on_a_mixture_of_experts_records_its_routing(tmp_path: Path):
    model = tiny_experts()
    export_model(model.module, model.tokenizer, tmp_path / "model")
    run = tiny_run(tmp_path / "model", "gspo", run={"steps": 2}, data={"held_out": 0})
    train_silently(run, tmp_path / "run")
    history = RunReader(tmp_path / "run").history
    for step in (0, 1):
        share = history.value(step, "routing/agreement")
        assert share is not None
        assert 0.5 < share <= 1.0
        changed = history.value(step, "routing/tokens_changed")
        assert changed is not None
        assert 0.0 <= changed < 1.0
