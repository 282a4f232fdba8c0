"""One vLLM engine on a tiny model for all tests of a module or session: its start takes seconds."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.tiny import tiny_model
from trimtab.config.cluster import VllmConfig
from trimtab.models import LoadedModel, export_model
from trimtab.types import Draw

HEAD = 32
"""The smallest size of a head that vLLM's attention on a CPU has."""
SETTINGS = VllmConfig(cache_gib=0.0625, max_sequences=64)
LONG_PROMPTS = tuple("what is " + " + ".join(f"{a}{b}" for b in range(1 + a, 14 + a)) for a in range(4))
"""Longer than a block of the prefix cache."""


def served_model(**changes: Any) -> LoadedModel:
    """The tiny model that the shared engine serves, with rows that no tokenizer knows.

    Its folder asks for sampling of another kind, to which nobody must listen.
    """
    model = tiny_model("qwen3", head_dim=HEAD, extra_rows=11, spread=0.1, **changes)
    for name, value in {"do_sample": True, "top_k": 1, "repetition_penalty": 1.5}.items():
        setattr(model.module.generation_config, name, value)
    return model


def start_engine(folder: Path, model: LoadedModel, **settings: Any) -> Any:
    """Write ``model`` to ``folder`` and start an engine on it."""
    from trimtab.distributed.vllm_engine import VllmEngine

    export_model(model.module, model.tokenizer, folder)
    told: dict[str, Any] = {"config": SETTINGS, **settings}
    return asyncio.run(VllmEngine.start(str(folder), **told))


def moved(model: LoadedModel, size: float = 0.05, seed: int = 1) -> list[tuple[str, torch.Tensor]]:
    """The model's weights, each moved at random; the model itself is left alone."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (name, p.detach() + size * torch.randn(p.shape, generator=generator))
        for name, p in model.module.named_parameters()
    ]


def take(model: LoadedModel, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Put weights into a model of this process, the trainer's side of a comparison."""
    own = dict(model.module.named_parameters())
    with torch.no_grad():
        for name, tensor in weights:
            own[name].copy_(tensor)


def long_draws(number: int = 0) -> list[Draw]:
    from tests.contract.test_engines import draws_of  # not at import: pytest must rewrite its asserts first

    draws = draws_of(LONG_PROMPTS, number)
    assert all(len(draw.prompt.token_ids) > 33 for draw in draws)
    return draws


def largest_difference(sampler: np.ndarray, plain: np.ndarray) -> float:
    return float(np.abs(sampler - plain).max())
