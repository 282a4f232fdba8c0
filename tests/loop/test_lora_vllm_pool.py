"""A policy with adapters in a pool of vLLM engines: their products arrive there too."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import cluster_run
from tests.contract.test_vllm_lora import adapted, require_newest
from tests.trainers import annotate, batch_for, update
from tests.vllm_engines import served_model
from trimtab.models import export_model

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.vllm]


def test_a_pool_of_vllm_gets_them_too(tmp_path: Path):
    from trimtab.distributed.assembly import Assembly

    trainer = adapted()
    plain = served_model()
    export_model(plain.module, plain.tokenizer, tmp_path)
    table = {"engine": "vllm", "engines": 1, "vllm": {"max_sequences": 16, "cache_gib": 0.03125}}
    with Assembly(cluster_run(tmp_path, cluster=table)) as assembly:
        pool: Any = asyncio.run(assembly.start_pool(trainer.model, trainer))
        assert update(trainer, annotate(trainer, batch_for(trainer.model))).applied
        source, version = asyncio.run(trainer.publish())
        asyncio.run(pool.load_weights(source, version))
        require_newest(pool, trainer)
        size = sum(p.numel() * 4 for p in plain.module.parameters())
        assert pool.traffic.bytes == size, "whole weights travel, whatever the rank"
