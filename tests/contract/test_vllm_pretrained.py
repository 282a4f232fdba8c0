"""vLLM on a real pretrained model with tied embeddings, against the trainer: SmolLM2-135M-Instruct."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from tests.contract.test_engines import sample
from tests.contract.test_local_engine import pairs
from tests.contract.test_pretrained_model import FOLDER, QUESTIONS, asked
from tests.vllm_engines import largest_difference, moved, take
from trimtab.config.cluster import VllmConfig
from trimtab.models import load_model
from trimtab.rollout.checks import TROUBLE_DIFFERENCE, check_ratio, check_weights_arrived
from trimtab.rollout.engine import Sampling
from trimtab.types import Draw

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason=f"{FOLDER.name} is not in models/ (python scripts/make_smollm2.py makes it)",
    ),
]

SAMPLING = Sampling(max_new_tokens=16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sampler_and_trainer_agree_before_and_after_a_push(dtype, record_property):
    """float32: every token within 1e-4. bfloat16: the mean difference in probability, within its band."""
    from trimtab.distributed.vllm_engine import VllmEngine

    trainer = load_model(str(FOLDER), device="cpu", dtype=dtype)
    draws = [Draw(asked(trainer, question), 0) for question in QUESTIONS]
    config = VllmConfig(cache_gib=0.25, max_sequences=16)
    started = VllmEngine.start(str(FOLDER), config=config, max_model_len=256, dtype=dtype)
    engine = asyncio.run(started)
    try:
        assert engine.dtype is trainer.dtype
        for version in (0, 1):
            if version:
                spread = {name: float(p.detach().std()) for name, p in trainer.module.named_parameters()}
                pushed = moved(trainer, size=1.0)
                own = dict(trainer.module.named_parameters())
                take(trainer, [(n, own[n] + 0.02 * spread[n] * (t - own[n])) for n, t in pushed])
                asyncio.run(engine.load_weights(trainer.module.named_parameters(), version))
            groups = sample(engine, draws, n=2, sampling=SAMPLING)
            sampler, plain = pairs(trainer, groups, 1.0)
            check = check_weights_arrived if version else check_ratio
            record_property(
                f"version {version}", check(sampler, plain, dtype=trainer.dtype).require().sentence
            )
            mean = float(np.abs(np.exp(sampler) - np.exp(plain)).mean())
            record_property(f"mean probability difference, version {version}", mean)
            assert trainer.dtype is not torch.float32 or largest_difference(sampler, plain) <= 1e-4
            assert mean <= (1e-5 if trainer.dtype is torch.float32 else TROUBLE_DIFFERENCE)
            if trainer.dtype is not torch.float32 and not version:
                _, exact = pairs(load_model(str(FOLDER), device="cpu", dtype="float32"), groups, 1.0)
                sides = [float(np.abs(np.exp(side) - np.exp(exact)).mean()) for side in (sampler, plain)]
                record_property("each side's mean probability difference to float32", sides)
                assert 0.5 < mean / max(sides) < 2.0, "neither side is at fault: each is as far from float32"
    finally:
        asyncio.run(engine.close())
