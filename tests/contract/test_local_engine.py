"""What the local engine promises beyond the contract, against plain passes of the same model."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.test_engines import by_key, draws_of, sample
from tests.tiny import EOS, tiny_model
from trimtab.errors import RunError
from trimtab.models import LoadedModel, as_loaded
from trimtab.rollout import decoding
from trimtab.rollout.checks import check_alone, check_ratio
from trimtab.rollout.decoding import Decoder
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.rollout.rows import Entry
from trimtab.types import Finish, Group, Rollout

TEXTS = tuple(f"{a}*{'x' * (b % 7)}{b}=" for a in range(4) for b in range(8))
LONG = Sampling(max_new_tokens=40, temperature=1.0)


@torch.no_grad()
def forced(model: LoadedModel, prompt: np.ndarray, rollout: Rollout, temperature: float) -> np.ndarray:
    """Log-probabilities of a rollout's tokens by one plain pass: no cache, no batch, no padding."""
    ids = torch.as_tensor(np.concatenate([prompt, rollout.token_ids]))[None]
    logits = model.module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    logits = logits[0, len(prompt) - 1 : -1, : model.vocab_size].float() / temperature
    picked = torch.log_softmax(logits, -1).gather(1, torch.as_tensor(rollout.token_ids)[:, None])
    return picked[:, 0].numpy()


def pairs(model: LoadedModel, groups: list[Group], temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """The sampler's log-probabilities of all tokens, and those of plain passes."""
    plain = [forced(model, g.prompt.token_ids, r, temperature) for g in groups for r in g.rollouts]
    return np.concatenate([r.logprobs for g in groups for r in g.rollouts]), np.concatenate(plain)


def answers(groups: list[Group]) -> list[Rollout]:
    return [rollout for group in groups for rollout in group.rollouts]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("arch", ["qwen3", "llama", "gpt2", "gemma3", "lfm2"])
def test_logprobs_equal_plain_passes(arch, temperature):
    """On thousands of tokens, with rows that end, leave and enter all the time."""
    changes = {"sliding_window": 8} if arch == "gemma3" else {}
    model = tiny_model(arch, spread=0.1, **changes)
    sampling = Sampling(max_new_tokens=40, temperature=temperature)
    groups = sample(LocalEngine(model, max_sequences=20), draws_of(TEXTS), n=3, sampling=sampling)
    sampler, plain = pairs(model, groups, temperature)
    assert len(sampler) > 1500
    np.testing.assert_allclose(sampler, plain, rtol=0, atol=1e-5)
    assert check_ratio(sampler, plain, dtype=torch.float32).passed


def test_a_forgotten_temperature_fails_the_check():
    model = tiny_model()
    groups = sample(
        LocalEngine(model), draws_of(TEXTS[:4]), sampling=Sampling(max_new_tokens=20, temperature=0.6)
    )
    sampler, plain = pairs(model, groups, 1.0)
    result = check_ratio(sampler, plain, dtype=torch.float32)
    assert not result.passed
    assert "temperature" in result.sentence
    with pytest.raises(RunError, match="temperature"):
        result.require()


@pytest.mark.parametrize("arch", ["qwen3", "gemma3", "lfm2"])
def test_same_tokens_whatever_the_batch(arch):
    changes = {"sliding_window": 8} if arch == "gemma3" else {}
    model = tiny_model(arch, spread=0.1, **changes)
    whole = sample(LocalEngine(model, max_sequences=256), draws_of(TEXTS), n=4, sampling=LONG)
    assert sum(r.length for r in answers(whole)) > 2000
    for rows, count in ((50, 32), (7, 6)):
        draws = draws_of(TEXTS)[:count][::-1]
        few = by_key(sample(LocalEngine(model, max_sequences=rows), draws, n=4, sampling=LONG))
        assert few == {key: by_key(whole)[key] for key in few}
        assert len(few) == 4 * count
    alone = sample(LocalEngine(model), draws_of(TEXTS)[5:6], n=1, sampling=LONG)[0].rollouts[0]
    together = next(r for r in answers(whole) if r.key == alone.key)
    assert check_alone([(alone, together)], dtype=torch.float32).value <= 1e-5


def test_a_group_larger_than_the_batch():
    model = tiny_model()
    small = sample(LocalEngine(model, max_sequences=3), draws_of(TEXTS[:2]), n=8, sampling=LONG)
    large = sample(LocalEngine(model), draws_of(TEXTS[:2]), n=8, sampling=LONG)
    assert by_key(small) == by_key(large)
    assert all([r.index for r in group.rollouts] == list(range(8)) for group in small)


@pytest.mark.parametrize("arch", ["qwen3", "lfm2"])
def test_moving_and_widening_the_columns_changes_nothing(arch, monkeypatch):
    model = tiny_model(arch)
    want = by_key(sample(LocalEngine(model), draws_of(TEXTS), n=2, sampling=LONG))
    monkeypatch.setattr(decoding, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", 20)
    assert by_key(sample(LocalEngine(model, max_sequences=9), draws_of(TEXTS), n=2, sampling=LONG)) == want


def test_an_ended_row_that_has_not_left_stays_within_the_context():
    """It is fed on until enough rows have ended, here beyond the last position that the model knows."""
    model = dataclasses.replace(tiny_model("gpt2", n_positions=40), stop_ids=())
    long, short = (draw.prompt for draw in draws_of(["x" * 30, "1"]))
    decoder = Decoder(model, Sampling(max_new_tokens=10), max_rows=16, longest_prompt=30, version=0)
    for owner, steps in enumerate((9, 9, 6)):  # the first two only so that the columns have been widened
        decoder.admit([Entry(owner, long.id, long.token_ids, 0, (1,))])
        for _ in range(steps):
            decoder.step()
    decoder.admit([Entry(3, short.id, short.token_ids, 0, tuple(range(15)))])
    while decoder.live:
        decoder.step()
    assert [len(ended.token_ids) for ended in decoder.drain()] == [10] * 18


def test_generation_config_has_no_say():
    """A checkpoint that asks for top_k = 1 and penalties is sampled as if it did not."""
    plain, greedy = tiny_model(), tiny_model()
    for name, value in {
        "do_sample": False,
        "top_k": 1,
        "repetition_penalty": 1.5,
        "temperature": 0.1,
    }.items():
        setattr(greedy.module.generation_config, name, value)
    groups = sample(LocalEngine(greedy), draws_of())
    assert by_key(groups) == by_key(sample(LocalEngine(plain), draws_of()))
    assert all(len({r.text for r in group.rollouts}) > 1 for group in groups)


def test_every_end_id_ends():
    """Chat models end turns with a second id, known to the generation config alone."""
    module = tiny_model().module
    module.generation_config.eos_token_id = [1, 9]
    model = as_loaded(module, tiny_model().tokenizer)
    assert model.stop_ids == (1, 9)
    rollouts = answers(sample(LocalEngine(model), draws_of(TEXTS), n=4, sampling=LONG))
    assert {int(r.token_ids[-1]) for r in rollouts if r.finish is Finish.STOP} == {1, 9}
    for r in rollouts:
        assert not np.isin(r.token_ids[:-1], [1, 9]).any()
        assert r.mask.all()


def test_pad_equal_to_end():
    """Masks come from lengths, so a tokenizer whose pad token is its end token changes nothing."""
    model, shared = tiny_model(), tiny_model()
    shared.tokenizer.pad_token = EOS
    shared.module.config.pad_token_id = 1
    groups = sample(LocalEngine(shared), draws_of())
    assert by_key(groups) == by_key(sample(LocalEngine(model), draws_of()))
    assert any(r.finish is Finish.STOP and r.mask[-1] for r in answers(groups))


def test_padding_rows_of_the_embedding_are_never_sampled():
    """Even where they hold nearly all the probability; log-probabilities are over known ids only."""
    model = tiny_model(extra_rows=11, tie_word_embeddings=False)
    weight = model.module.get_output_embeddings().weight
    with torch.no_grad():
        weight[model.vocab_size :] *= 50
    assert weight.shape[0] == model.vocab_size + 11
    groups = sample(LocalEngine(model), draws_of(TEXTS), sampling=LONG)
    assert max(int(r.token_ids.max()) for r in answers(groups)) < model.vocab_size
    np.testing.assert_allclose(*pairs(model, groups[:6], 1.0), rtol=0, atol=1e-5)


def test_the_module_is_sampled_in_eval_mode():
    model = tiny_model("gpt2", attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5)
    engine = LocalEngine(model)
    want = by_key(sample(engine, draws_of()))
    model.module.train()
    assert by_key(sample(engine, draws_of())) == want
    assert not any(p.grad_fn or p.grad is not None for p in model.module.parameters())


def test_damaged_weights_stop_the_run_and_name_the_prompt():
    model = tiny_model(tie_word_embeddings=False)
    with torch.no_grad():
        model.module.get_input_embeddings().weight[12] = torch.nan  # the letter a
    with pytest.raises(RunError, match=r"not finite at token 1 of an answer to prompt 'p1'"):
        sample(LocalEngine(model), draws_of(["2+3", "a+b"]))


def test_bfloat16_stays_in_its_band():
    model = tiny_model()
    model.module.to(torch.bfloat16)
    groups = sample(LocalEngine(model), draws_of(TEXTS), sampling=LONG)
    result = check_ratio(*pairs(model, groups, 1.0), dtype=torch.bfloat16)
    assert result.passed
    assert 0 < result.value < result.limit


def test_a_long_stop_text_of_many_tokens():
    """Completed by its last character only, and found although no token contains it."""
    model = tiny_model()
    plain = answers(sample(LocalEngine(model), draws_of(TEXTS), sampling=LONG))
    chosen = next(r.text[5:9] for r in plain if r.length > 12)
    sampling = Sampling(max_new_tokens=40, stop=(chosen,))
    stopped = answers(sample(LocalEngine(model), draws_of(TEXTS), sampling=sampling))
    ended = [r for r in stopped if r.text.endswith(chosen)]
    assert ended
    assert all(r.finish is Finish.STOP and r.text.count(chosen) == 1 for r in ended)
    assert len(stopped) == len(plain)


def test_the_effective_sampler_is_told():
    model = tiny_model(extra_rows=11)
    told = str(LocalEngine(model).describe(Sampling(temperature=0.6, max_new_tokens=9, stop=("</s>",))))
    for words in (
        "temperature 0.6",
        "no top-k",
        "at most 9 tokens",
        "1 '<eos>'",
        "'</s>'",
        "11 padding ids masked",
    ):
        assert words in told
    assert "masked" not in str(LocalEngine(tiny_model()).describe(Sampling()))
