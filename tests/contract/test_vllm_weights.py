"""New weights in a running vLLM engine: whole, at once, and nothing of the old ones left anywhere."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.test_engines import by_key, draws_of, sample
from tests.contract.test_local_engine import LONG, TEXTS, forced, pairs
from tests.vllm_engines import largest_difference, long_draws, moved, served_model, take
from trimtab.distributed.transfer import Meeting, Sender, described, free_port
from trimtab.errors import RunError
from trimtab.rollout.checks import check_ratio, check_weights_arrived
from trimtab.rollout.engine import Sampling
from trimtab.types import Group

pytestmark = pytest.mark.vllm

LIMIT = 1e-4


def test_a_probe_agrees_on_both_sides_after_each_sync(vllm_engine):
    """Three syncs in place; the output layer shares its weight with the embedding, which vLLM packs apart."""
    trainer = served_model()
    assert trainer.module.config.tie_word_embeddings
    probe = long_draws()
    before = sample(vllm_engine, probe, n=2, sampling=LONG)
    for version in (1, 2, 3):
        take(trainer, moved(trainer, seed=version))
        asyncio.run(vllm_engine.load_weights(trainer.module.named_parameters(), version))
        assert vllm_engine.version == version
        groups = sample(vllm_engine, probe, n=2, sampling=LONG)
        check_weights_arrived(*pairs(trainer, groups, 1.0), dtype=torch.float32).require()
        assert largest_difference(*pairs(trainer, groups, 1.0)) <= LIMIT
        assert all(r.versions == ((version, 0, r.length),) for g in groups for r in g.rollouts)
        assert by_key(groups) != by_key(before)
    assert not check_ratio(*pairs(trainer, before, 1.0), dtype=torch.float32).passed
    size = sum(p.numel() * 4 for p in trainer.module.parameters())
    assert vllm_engine.traffic.bytes % size == 0
    assert vllm_engine.traffic.pushes >= 3


def test_a_stale_prefix_cache_would_be_noticed(vllm_engine, monkeypatch):
    """What the reset is for: without it, keys and values of the old weights answer for the prompt."""
    trainer = served_model()
    sample(vllm_engine, long_draws(), n=1, sampling=LONG)

    async def forgotten(**_: bool) -> bool:
        return True

    take(trainer, moved(trainer))
    with monkeypatch.context() as patch:
        patch.setattr(vllm_engine._core, "reset_prefix_cache", forgotten)
        asyncio.run(vllm_engine.load_weights(trainer.module.named_parameters(), 1))
    stale = sample(vllm_engine, long_draws(), n=2, sampling=LONG)
    assert not check_weights_arrived(*pairs(trainer, stale, 1.0), dtype=torch.float32).passed
    asyncio.run(vllm_engine.load_weights(trainer.module.named_parameters(), 2))
    fresh = sample(vllm_engine, long_draws(), n=2, sampling=LONG)
    assert largest_difference(*pairs(trainer, fresh, 1.0)) <= LIMIT


def test_weights_loaded_while_sampling(vllm_engine, vllm_model, monkeypatch):
    """Running answers go on under the new weights; every token is what its version would have drawn."""
    ends = dataclasses.replace(vllm_engine.model, stop_ids=(1, 5))  # so that lengths vary
    monkeypatch.setattr(vllm_engine, "model", ends)
    after = served_model()
    take(after, moved(after))
    sampling = Sampling(max_new_tokens=200)
    draws = draws_of(TEXTS)

    async def collect() -> list[Group]:
        groups = []
        async for group in vllm_engine.generate(draws, 3, sampling, seed=3):
            groups.append(group)
            if len(groups) == 1:
                await vllm_engine.load_weights(after.module.named_parameters(), 1)
        return groups

    groups = asyncio.run(collect())
    assert len(groups) == len(draws)
    kinds = set()
    for rollout in (r for group in groups for r in group.rollouts):
        prompt = next(g.prompt.token_ids for g in groups if g.prompt.id == rollout.prompt_id)
        assert [s.start for s in rollout.versions] == [0, *(s.stop for s in rollout.versions[:-1])]
        assert rollout.versions[-1].stop == rollout.length
        kinds.add(tuple(span.version for span in rollout.versions))
        for version, start, stop in rollout.versions:
            plain = forced((vllm_model, after)[version], prompt, rollout, 1.0)
            np.testing.assert_allclose(rollout.logprobs[start:stop], plain[start:stop], rtol=0, atol=LIMIT)
    assert (0, 1) in kinds
    assert kinds <= {(0,), (0, 1), (1,)}


def test_weights_broadcast_by_another_process(vllm_engine):
    """A link that is opened once carries every push; closing it costs nothing but the link."""
    trainer = served_model()

    async def pushes() -> None:
        meeting = Meeting("127.0.0.1", free_port(), 1 + vllm_engine.link_ranks, 30.0)
        opening = asyncio.create_task(asyncio.to_thread(Sender, meeting))
        await vllm_engine.open_link(meeting, 1)
        sender = await opening
        for version in (1, 2):
            take(trainer, moved(trainer, seed=version))
            source = list(trainer.module.named_parameters())
            await asyncio.gather(
                asyncio.to_thread(sender.send, source),
                vllm_engine.receive_weights(described(source), version),
            )
        sender.close()

    asyncio.run(pushes())
    groups = sample(vllm_engine, long_draws(), n=2, sampling=LONG)
    assert vllm_engine.version == 2
    assert largest_difference(*pairs(trainer, groups, 1.0)) <= LIMIT


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: w | {"model.extra": torch.zeros(2)}, "model.extra.*no such parameter"),
        (lambda w: w | {"model.norm.weight": torch.zeros(3)}, r"model.norm.weight.*\(3,\)"),
        (lambda w: {k: v for k, v in w.items() if "norm" not in k}, "lack .* parameters"),
    ],
    ids=["unknown", "shape", "missing"],
)
def test_half_delivered_weights_are_refused_before_anything_changes(vllm_engine, vllm_model, spoil, words):
    spoiled = spoil(dict(moved(vllm_model)))
    with pytest.raises(RunError, match=words):
        asyncio.run(vllm_engine.load_weights(list(spoiled.items()), 1))
    assert vllm_engine.version == 0
    groups = sample(vllm_engine, draws_of())
    assert largest_difference(*pairs(vllm_model, groups, 0.8)) <= LIMIT
