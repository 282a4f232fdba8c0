"""What every rollout engine must do, over the same prompts; then what only real models can show."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from tests.tiny import char_tokenizer, tiny_model
from trimtab.errors import DataError
from trimtab.rollout.engine import RolloutEngine, Sampling, rollout_seed
from trimtab.rollout.local import LocalEngine
from trimtab.rollout.scripted import ScriptedEngine
from trimtab.types import Draw, Finish, Group, Prompt

TEXTS = ("2+3=", "hello there, how are you", "x", "10-7=?", "the quick brown fox", "0", "abc abc abc", "9*9")
N = 4
SAMPLING = Sampling(max_new_tokens=24, temperature=0.8)


def draws_of(texts: Sequence[str] = TEXTS, number: int = 0) -> list[Draw]:
    encode = char_tokenizer()
    ids = [np.asarray(encode(text)["input_ids"], dtype=np.int64) for text in texts]
    prompts = [
        Prompt(id=f"p{i}", token_ids=t, text=x, task="t")
        for i, (t, x) in enumerate(zip(ids, texts, strict=True))
    ]
    return [Draw(prompt, number) for prompt in prompts]


def sample(
    engine: RolloutEngine,
    draws: Sequence[Draw],
    n: int = N,
    sampling: Sampling = SAMPLING,
    seed: int = 7,
    **more: str,
) -> list[Group]:
    async def collect() -> list[Group]:
        return [group async for group in engine.generate(draws, n, sampling, seed=seed, **more)]

    return asyncio.run(collect())


def by_key(groups: Sequence[Group]) -> dict[str, list[int]]:
    return {r.key: r.token_ids.tolist() for group in groups for r in group.rollouts}


def make_local() -> LocalEngine:
    return LocalEngine(tiny_model(), max_sequences=12)


def make_scripted() -> ScriptedEngine:
    tokenizer = char_tokenizer()
    long = "this answer is longer than twenty-four tokens"
    return ScriptedEngine(
        {f"p{i}": [f"{i}+{i}", f"a much longer one {i}", long, ""] for i in range(len(TEXTS))},
        encode=lambda text: tokenizer(text)["input_ids"],
        decode=lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True),
        end_id=tokenizer.eos_token_id,
        context=256,
    )


@pytest.fixture(params=["local", "scripted", pytest.param("vllm", marks=pytest.mark.vllm)])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> RolloutEngine:
    if kind == "vllm":
        return request.getfixturevalue("vllm_engine")
    return {"local": make_local, "scripted": make_scripted}[kind]()


def test_is_an_engine(engine):
    assert isinstance(engine, RolloutEngine)
    assert engine.version == 0


def test_every_draw_gives_one_complete_group(engine):
    draws = draws_of() + draws_of(TEXTS[:2], number=1)
    groups = sample(engine, draws)
    assert sorted(group.key for group in groups) == sorted(draw.key for draw in draws)
    for group in groups:
        assert [r.index for r in group.rollouts] == list(range(N))
        for r in group.rollouts:
            assert (r.prompt_id, r.draw) == (group.prompt.id, group.draw.number)


def test_rollouts_are_whole(engine):
    tokenizer = char_tokenizer()
    finishes = set()
    for group in sample(engine, draws_of()):
        for r in group.rollouts:
            assert 1 <= r.length <= SAMPLING.max_new_tokens
            assert r.token_ids.shape == r.logprobs.shape == r.mask.shape
            assert r.token_ids.dtype == np.int64
            assert r.logprobs.dtype == np.float32
            assert r.mask.dtype == np.bool_
            assert r.mask.all()
            assert np.isfinite(r.logprobs).all()
            assert (r.logprobs <= 0).all()
            finishes.add(r.finish)
            assert (r.finish is Finish.STOP) == (r.token_ids[-1] == tokenizer.eos_token_id)
            assert r.finish is Finish.STOP or r.length == SAMPLING.max_new_tokens
            assert tokenizer.eos_token_id not in r.token_ids[:-1]
            assert r.text == tokenizer.decode(r.token_ids.tolist(), skip_special_tokens=True)
    assert finishes == {Finish.STOP, Finish.LENGTH}


def test_seeds_name_the_rollout(engine):
    for group in sample(engine, draws_of(number=3), seed=11, purpose="test"):
        for r in group.rollouts:
            assert r.seed == rollout_seed(11, "test", r.prompt_id, 3, r.index)


def test_same_seed_same_rollouts(engine):
    """The tokens; log-probabilities to rounding, which depends on the company where batches form freely."""
    once, again = (sorted(sample(engine, draws_of()), key=lambda group: group.key) for _ in range(2))
    assert by_key(once) == by_key(again)
    for a, b in zip(once, again, strict=True):
        for r, s in zip(a.rollouts, b.rollouts, strict=True):
            np.testing.assert_allclose(r.logprobs, s.logprobs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["local", "scripted"])
def test_same_seed_same_logprobs_to_the_bit(engine):
    """Where the engine forms its batches by counts alone; vLLM's depend on when requests arrive."""
    once, again = sample(engine, draws_of()), sample(engine, draws_of())
    for a, b in zip(once, again, strict=True):
        for r, s in zip(a.rollouts, b.rollouts, strict=True):
            np.testing.assert_array_equal(r.logprobs, s.logprobs)


def test_order_and_company_do_not_matter(engine):
    together = by_key(sample(engine, draws_of()))
    assert by_key(sample(engine, draws_of()[::-1])) == together
    for draw in draws_of():
        alone = by_key(sample(engine, [draw]))
        assert alone == {key: together[key] for key in alone}


def test_versions_cover_every_token(engine, kind, request):
    model = request.getfixturevalue("vllm_model") if kind == "vllm" else tiny_model()

    async def load() -> None:
        await engine.load_weights(list(model.module.named_parameters()), 5)

    asyncio.run(load())
    assert engine.version == 5
    for group in sample(engine, draws_of(TEXTS[:2])):
        for r in group.rollouts:
            assert r.versions == ((5, 0, r.length),)
            assert r.version == 5


def test_nothing_asked_nothing_sampled(engine):
    assert sample(engine, []) == []


@pytest.mark.parametrize("text", ["", "a" * 240], ids=["empty", "too long"])
def test_impossible_prompt_is_refused_before_sampling(engine, text):
    """The bad prompt stands last, and yet no group comes out before the error."""
    draws = draws_of(["1+1=", text])
    seen = []

    async def collect() -> None:
        async for group in engine.generate(draws, N, SAMPLING, seed=0):
            seen.append(group)

    with pytest.raises(DataError, match="p1"):
        asyncio.run(collect())
    assert not seen


def test_other_tasks_run_meanwhile(engine):
    async def both() -> int:
        turns = 0
        running = True

        async def count() -> None:
            nonlocal turns
            while running:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(count())
        groups = [group async for group in engine.generate(draws_of(), N, SAMPLING, seed=0)]
        running = False
        await task
        return turns if groups else 0

    assert asyncio.run(both()) >= len(TEXTS)


def test_stop_text_ends_the_answer(engine):
    stop = Sampling(max_new_tokens=24, temperature=0.8, stop=("e", "n "))
    plain = {r.key: r for group in sample(engine, draws_of()) for r in group.rollouts}
    met = 0
    for group in sample(engine, draws_of(), sampling=stop):
        for r in group.rollouts:
            ends = [plain[r.key].text.find(s) + len(s) for s in stop.stop if s in plain[r.key].text]
            if not ends:
                assert r.token_ids.tolist() == plain[r.key].token_ids.tolist()
                continue
            met += 1
            assert r.text == plain[r.key].text[: min(ends)]
            assert r.finish is Finish.STOP
            assert r.length <= plain[r.key].length
            assert r.token_ids.tolist() == plain[r.key].token_ids[: r.length].tolist()
    assert met >= 3
