"""What the local engine does when weights change: between two calls, and while it samples."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.test_engines import by_key, draws_of, sample
from tests.contract.test_local_engine import LONG, TEXTS, forced, pairs
from tests.tiny import tiny_model
from trimtab.errors import RunError
from trimtab.models import LoadedModel
from trimtab.rollout.checks import check_ratio, fingerprint
from trimtab.rollout.local import LocalEngine
from trimtab.types import Group


def moved(model: LoadedModel, size: float = 0.05) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {name: p.detach() + size * torch.randn_like(p) for name, p in model.module.named_parameters()}


def test_logprobs_follow_new_weights():
    """The same prompt before and after a sync: nothing of the old weights is left anywhere."""
    model = tiny_model()
    engine = LocalEngine(model)
    old = sample(engine, draws_of(), sampling=LONG)
    asyncio.run(engine.load_weights(list(moved(model).items()), 1))
    new = sample(engine, draws_of(), sampling=LONG)
    assert by_key(new) != by_key(old)
    np.testing.assert_allclose(*pairs(model, new, 1.0), rtol=0, atol=1e-5)
    sampler, plain = pairs(model, old, 1.0)
    assert not check_ratio(sampler, plain, dtype=torch.float32).passed


@pytest.mark.parametrize("arch", ["qwen3", "lfm2"])
def test_weights_loaded_while_sampling(arch):
    """Running answers go on under the new weights; every token is what its version would have drawn."""
    model = dataclasses.replace(tiny_model(arch, spread=0.1), stop_ids=(1, 5, 6))  # so that lengths vary
    before = dataclasses.replace(model, module=copy.deepcopy(model.module))
    engine = LocalEngine(model, max_sequences=12)
    draws, source = draws_of(TEXTS), list(moved(model).items())

    async def collect() -> list[Group]:
        groups = []
        async for group in engine.generate(draws, 3, LONG, seed=3):
            groups.append(group)
            if len(groups) == 1:
                await engine.load_weights(source, 1)
        return groups

    groups = asyncio.run(collect())
    assert len(groups) == len(draws)
    kinds = set()
    for group in groups:
        for r in group.rollouts:
            assert [s.start for s in r.versions] == [0, *(s.stop for s in r.versions[:-1])]
            assert r.versions[-1].stop == r.length
            kinds.add(tuple(span.version for span in r.versions))
            for version, start, stop in r.versions:
                plain = forced((before, model)[version], group.prompt.token_ids, r, 1.0)
                np.testing.assert_allclose(r.logprobs[start:stop], plain[start:stop], rtol=0, atol=1e-5)
    assert kinds == {(0,), (0, 1), (1,)}


def test_own_tensors_are_not_copied():
    model = tiny_model()
    engine = LocalEngine(model)
    want = fingerprint(model.module.named_parameters())
    pointers = [p.data_ptr() for p in model.module.parameters()]
    asyncio.run(engine.load_weights(list(model.module.named_parameters()), 4))
    assert engine.version == 4
    assert fingerprint(model.module.named_parameters()) == want
    assert [p.data_ptr() for p in model.module.parameters()] == pointers


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: w | {"model.extra": torch.zeros(2)}, "model.extra.*no such parameter"),
        (lambda w: w | {"model.norm.weight": torch.zeros(3)}, r"model.norm.weight.*\(3,\)"),
        (lambda w: {k: v for k, v in w.items() if "norm" not in k}, "lack .* parameters"),
    ],
    ids=["unknown", "shape", "missing"],
)
def test_half_delivered_weights_are_refused(spoil, words):
    engine = LocalEngine(tiny_model())
    source = spoil(moved(engine.model))
    with pytest.raises(RunError, match=words):
        asyncio.run(engine.load_weights(list(source.items()), 1))
    assert engine.version == 0


def test_any_change_changes_the_fingerprint():
    model = tiny_model()
    before = fingerprint(model.module.named_parameters())
    assert before == fingerprint(tiny_model().module.named_parameters())
    with torch.no_grad():
        model.module.base_model.norm.weight[0] += 1e-6
    assert fingerprint(model.module.named_parameters()) != before
