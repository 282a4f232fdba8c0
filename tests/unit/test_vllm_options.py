"""What a vLLM engine is started with, without starting one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os

import pytest
import torch

from tests.tiny import tiny_model
from trimtab.config.cluster import VllmConfig
from trimtab.distributed.skeleton import check_complete, load_skeleton
from trimtab.distributed.transfer import described
from trimtab.distributed.vllm_options import EngineLog, engine_arguments, engine_dtype, limit_of
from trimtab.errors import DataError, RunError, SettingError
from trimtab.models import load_model
from trimtab.rollout.local import MODEL_CONTEXT


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"memory_share": 1.5}, r"cluster.vllm.memory_share must be in \(0, 1\], got 1.5"),
        ({"cache_gib": 0.0}, "cluster.vllm.cache_gib must be > 0"),
        ({"max_sequences": 0}, "cluster.vllm.max_sequences must be >= 1"),
        ({"max_model_len": -1}, "cluster.vllm.max_model_len must be >= 0, got -1"),
        ({"tensor_parallel": 0}, "cluster.vllm.tensor_parallel must be >= 1"),
        ({"dtype": "bfloat"}, "cluster.vllm.dtype.*did you mean 'bfloat16'"),
    ],
)
def test_impossible_options_are_refused(setting, words):
    with pytest.raises(SettingError, match=words):
        VllmConfig(**setting)


def test_what_the_engine_is_started_with():
    config = VllmConfig(max_sequences=40, compile=True, cache_gib=0.5)
    told = engine_arguments("folder", tiny_model(), config, torch.bfloat16, 20_000)
    assert (told["dtype"], told["max_model_len"], told["max_num_seqs"]) == ("bfloat16", 20_000, 40)
    assert (told["logprobs_mode"], told["generation_config"]) == ("processed_logprobs", "vllm")
    assert told["enforce_eager"] is False
    if not torch.cuda.is_available():
        assert told["enable_chunked_prefill"] is False
        assert told["max_num_batched_tokens"] >= 20_000
        assert told["kv_cache_memory_bytes"] == 1 << 29


def test_a_limit_is_named_by_the_setting_that_it_came_from():
    model = tiny_model()
    assert limit_of(model.context, model, VllmConfig()) == MODEL_CONTEXT
    assert limit_of(64, model, VllmConfig(max_model_len=64)) == "cluster.vllm.max_model_len ="
    assert "data.max_prompt_tokens" in limit_of(64, model, VllmConfig())


def test_the_engine_has_the_dtype_of_the_model_unless_told():
    assert engine_dtype(VllmConfig(), "float16") is torch.float16
    assert engine_dtype(VllmConfig(dtype="bfloat16"), "float32") is torch.bfloat16


def test_the_environment_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv("TORCH_LOGS", "mine")
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    before, log = dict(os.environ), EngineLog()
    with log.environment(compile=False):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
        assert os.environ["TORCH_LOGS"] == "mine"
    log.remove()
    assert dict(os.environ) == before


def test_a_skeleton_is_the_model_without_its_weights():
    whole, skeleton = (
        load_model("embedded/sums", device="cpu", dtype="float32"),
        load_skeleton("embedded/sums"),
    )
    assert described(skeleton.module.named_parameters()) == described(whole.module.named_parameters())
    assert (skeleton.stop_ids, skeleton.vocab_size, skeleton.context) == (
        whole.stop_ids,
        whole.vocab_size,
        whole.context,
    )
    assert {p.device.type for p in skeleton.module.parameters()} == {"meta"}
    offered = described(whole.module.named_parameters())
    check_complete(skeleton, offered, 1)
    with pytest.raises(RunError, match=f"lack 1 parameters, {offered[-1].name!r}"):
        check_complete(skeleton, offered[:-1], 1)
    with pytest.raises(DataError, match="cannot be read as a causal language model"):
        load_skeleton("nowhere/at-all")
