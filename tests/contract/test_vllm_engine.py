"""What the vLLM engine promises beyond the contract, against plain passes of the trainer's model."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.test_engines import draws_of, sample
from tests.contract.test_local_engine import LONG, TEXTS, answers, pairs
from tests.vllm_engines import SETTINGS, largest_difference, long_draws
from trimtab.rollout.checks import check_alone, check_ratio
from trimtab.rollout.engine import Sampling
from trimtab.types import Finish, Group

pytestmark = pytest.mark.vllm

LIMIT = 1e-4


def running(engine) -> int:
    """Requests that vLLM's client still waits for."""
    return engine._core.get_num_unfinished_requests()


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logprobs_equal_plain_passes(vllm_engine, vllm_model, temperature, record_property):
    sampling = Sampling(max_new_tokens=40, temperature=temperature)
    groups = sample(vllm_engine, draws_of(TEXTS), n=3, sampling=sampling)
    sampler, plain = pairs(vllm_model, groups, temperature)
    assert len(sampler) > 1500
    assert largest_difference(sampler, plain) <= LIMIT
    assert check_ratio(sampler, plain, dtype=vllm_engine.dtype).passed
    mean = float(np.abs(np.exp(sampler) - np.exp(plain)).mean())
    record_property("mean probability difference", mean)
    assert mean <= 1e-5


def test_a_forgotten_temperature_fails_the_check(vllm_engine, vllm_model):
    groups = sample(vllm_engine, draws_of(TEXTS[:4]), sampling=Sampling(max_new_tokens=20, temperature=0.6))
    assert not check_ratio(*pairs(vllm_model, groups, 1.0), dtype=torch.float32).passed


def test_many_prompts_and_answers_with_seeds(vllm_engine, vllm_model):
    """16 prompts of 8 answers, whose prefills do not fit into one pass: a cut prefill would crash vLLM."""
    draws = [draw for number in range(4) for draw in long_draws(number)]
    groups = sample(vllm_engine, draws, n=8, sampling=LONG)
    assert sorted(group.key for group in groups) == sorted(draw.key for draw in draws)
    assert len({tuple(r.token_ids) for r in answers(groups)}) == 16 * 8
    assert largest_difference(*pairs(vllm_model, groups[::5], 1.0)) <= LIMIT


def test_alone_and_together(vllm_engine):
    together = {r.key: r for r in answers(sample(vllm_engine, draws_of(TEXTS), n=4, sampling=LONG))}
    alone = [sample(vllm_engine, [d], n=4, sampling=LONG)[0] for d in draws_of(TEXTS)[:3]]
    pairs_of = [(r, together[r.key]) for r in answers(alone)]
    check_alone(pairs_of, dtype=torch.float32).require()


def test_padding_rows_of_the_embedding_are_never_sampled(vllm_engine, vllm_model):
    """Even where they hold nearly all the probability; log-probabilities are over known ids only."""
    heavy = {name: p.detach().clone() for name, p in vllm_model.module.named_parameters()}
    heavy["model.embed_tokens.weight"][vllm_model.vocab_size :] *= 50
    asyncio.run(vllm_engine.load_weights(list(heavy.items()), 1))
    groups = sample(vllm_engine, draws_of(TEXTS), sampling=LONG)
    assert max(int(r.token_ids.max()) for r in answers(groups)) < vllm_model.vocab_size
    assert largest_difference(*pairs(vllm_model, groups[:6], 1.0)) <= LIMIT


def test_every_end_id_ends(vllm_engine, monkeypatch):
    monkeypatch.setattr(vllm_engine, "model", dataclasses.replace(vllm_engine.model, stop_ids=(1, 9)))
    rollouts = answers(sample(vllm_engine, draws_of(TEXTS), n=4, sampling=LONG))
    assert {int(r.token_ids[-1]) for r in rollouts if r.finish is Finish.STOP} == {1, 9}
    for r in rollouts:
        assert not np.isin(r.token_ids[:-1], [1, 9]).any()
        assert (r.finish is Finish.STOP) == (r.token_ids[-1] in (1, 9))


def test_generation_config_has_no_say(vllm_engine, vllm_model):
    """The served folder asks for top_k = 1 and a repetition penalty; nobody listens."""
    told = vllm_model.module.generation_config
    assert (told.top_k, told.repetition_penalty) == (1, 1.5)
    groups = sample(vllm_engine, draws_of())
    assert all(len({r.text for r in group.rollouts}) > 1 for group in groups)


def test_a_long_stop_text_of_many_tokens(vllm_engine):
    plain = answers(sample(vllm_engine, draws_of(TEXTS), sampling=LONG))
    chosen = next(r.text[5:9] for r in plain if r.length > 12)
    stopped = answers(
        sample(vllm_engine, draws_of(TEXTS), sampling=Sampling(max_new_tokens=40, stop=(chosen,)))
    )
    ended = [r for r in stopped if r.text.endswith(chosen)]
    assert ended
    assert all(r.finish is Finish.STOP and r.text.count(chosen) == 1 for r in ended)
    assert all(r.versions == ((0, 0, r.length),) for r in stopped)
    assert len(stopped) == len(plain)
    assert running(vllm_engine) == 0


def test_leaving_early_aborts_what_runs(vllm_engine):
    async def first() -> Group:
        stream = vllm_engine.generate(draws_of(TEXTS), 4, LONG, seed=1)
        async for group in stream:
            assert running(vllm_engine) > 0
            await stream.aclose()
            return group
        raise AssertionError("no group came")

    asyncio.run(first())
    assert running(vllm_engine) == 0
    assert len(sample(vllm_engine, draws_of(), seed=2)) == len(draws_of())


def test_cancelling_aborts_what_runs(vllm_engine):
    async def cancelled() -> None:
        async def collect() -> list[Group]:
            return [g async for g in vllm_engine.generate(draws_of(TEXTS), 8, LONG, seed=1)]

        task = asyncio.create_task(collect())
        while not running(vllm_engine):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert running(vllm_engine) == 0


def test_the_effective_sampler_is_told(vllm_engine):
    told = str(vllm_engine.describe(Sampling(temperature=0.6, max_new_tokens=9, stop=("</s>",))))
    for words in ("temperature 0.6", "no top-k", "at most 9 tokens", "1 '<eos>'", "11 padding ids masked"):
        assert words in told
    assert vllm_engine.dtype is torch.float32
    assert vllm_engine.link_ranks == SETTINGS.tensor_parallel
