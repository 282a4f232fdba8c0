"""Decoding with packed weights and shared prompts, against the plain path and against plain passes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.test_engines import by_key, draws_of, sample
from tests.contract.test_local_engine import LONG, TEXTS, answers, forced, pairs
from tests.contract.test_local_engine_weights import moved
from tests.tiny import tiny_model
from trimtab.config.run import SamplingSection
from trimtab.errors import RunError, SettingError
from trimtab.models import LoadedModel
from trimtab.rollout import agreement, decoding
from trimtab.rollout.agreement import check_packed
from trimtab.rollout.checks import check_ratio
from trimtab.rollout.decoding import Decoder
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.rollout.packed import PackedModel, Product, can_pack
from trimtab.rollout.rows import Entry
from trimtab.types import Group

ARCHITECTURES = {
    "llama": {},
    "llama with biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": None},
    "llama3 positions": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


def model_of(name: str, **changes: object) -> LoadedModel:
    return tiny_model(
        name.split()[0].rstrip("3") if name.startswith("llama") else name, **ARCHITECTURES[name], **changes
    )


def packed_engine(model: LoadedModel, **options: object) -> LocalEngine:
    return LocalEngine(model, fast="always", **options)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_answers_as_the_plain_path(name):
    """On thousands of tokens of ragged answers, with rows that end, leave, move and enter all the time."""
    model = model_of(name, spread=0.1)
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.ndim == 1:  # biases and norms, which a fresh model leaves at 0 and 1
                parameter.add_(0.1 * torch.randn_like(parameter))
    plain = sample(LocalEngine(model, max_sequences=20, fast="never"), draws_of(TEXTS), n=3, sampling=LONG)
    engine = packed_engine(model, max_sequences=20)
    fast = sample(engine, draws_of(TEXTS), n=3, sampling=LONG)
    assert engine.agreement is not None
    assert engine.agreement.passed
    assert by_key(fast) == by_key(plain)
    assert sum(r.length for r in answers(fast)) > 1500
    np.testing.assert_allclose(*pairs(model, fast, 1.0), rtol=0, atol=1e-5)


def test_same_tokens_whatever_the_batch():
    model = tiny_model(spread=0.1)
    whole = by_key(sample(packed_engine(model), draws_of(TEXTS), n=4, sampling=LONG))
    for rows, count in ((50, 32), (7, 6), (3, 2)):
        few = by_key(
            sample(
                packed_engine(model, max_sequences=rows), draws_of(TEXTS)[:count][::-1], n=4, sampling=LONG
            )
        )
        assert few == {key: whole[key] for key in few}
        assert len(few) == 4 * count


def test_moving_and_widening_the_columns_changes_nothing(monkeypatch):
    model = tiny_model()
    want = by_key(sample(LocalEngine(model, fast="never"), draws_of(TEXTS), n=2, sampling=LONG))
    monkeypatch.setattr(decoding, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", 20)
    assert by_key(sample(packed_engine(model, max_sequences=9), draws_of(TEXTS), n=2, sampling=LONG)) == want


def test_a_prompt_is_kept_once_for_its_group_and_forgotten_with_its_last_row():
    model = dataclasses.replace(tiny_model(), stop_ids=())
    prompts = [draw.prompt for draw in draws_of(("1+1=", "22+2=", "3="))]
    packed = PackedModel(model.module, model.vocab_size)
    decoder = Decoder(
        model, Sampling(max_new_tokens=3), max_rows=24, longest_prompt=5, version=0, packed=packed
    )
    decoder.admit([Entry(i, p.id, p.token_ids, 0, tuple(range(8))) for i, p in enumerate(prompts)])
    assert all(block.prompt_keys.shape[0] == 3 for block in decoder.shared.blocks)
    while decoder.live:
        decoder.step()
    decoder.retire()
    assert all(block.prompt_keys.shape[0] == 0 for block in decoder.shared.blocks)


def in_between(model: LoadedModel, engine: LocalEngine) -> tuple[list[Group], LoadedModel]:
    """Groups sampled while other weights are loaded after the first of them, and the model as it was."""
    before = dataclasses.replace(model, module=copy.deepcopy(model.module))
    source = list(moved(model).items())

    async def collect() -> list[Group]:
        groups = []
        async for group in engine.generate(draws_of(TEXTS), 3, LONG, seed=3):
            groups.append(group)
            if len(groups) == 1:
                await engine.load_weights(source, 1)
        return groups

    return asyncio.run(collect()), before


def largest_error(groups: list[Group], policies: tuple[LoadedModel, LoadedModel]) -> float:
    """Between each token's log-probability and that of the policy version which is said to have drawn it."""
    errors = [0.0]
    for group in groups:
        for r in group.rollouts:
            for version, start, stop in r.versions:
                plain = forced(policies[version], group.prompt.token_ids, r, 1.0)
                errors.append(float(np.abs(r.logprobs[start:stop] - plain[start:stop]).max(initial=0.0)))
    return max(errors)


def test_weights_loaded_while_sampling():
    model = dataclasses.replace(tiny_model(spread=0.1), stop_ids=(1, 5, 6))
    groups, before = in_between(model, packed_engine(model, max_sequences=12))
    assert {tuple(s.version for s in r.versions) for r in answers(groups)} == {(0,), (0, 1), (1,)}
    assert largest_error(groups, (before, model)) <= 1e-5


def test_a_stale_copy_of_the_weights_would_be_seen(monkeypatch):
    """The counter-test: the same with packed weights that are never made anew."""
    model = dataclasses.replace(tiny_model(spread=0.1), stop_ids=(1, 5, 6))
    fresh = PackedModel.refresh

    def once(self: PackedModel) -> None:
        if not hasattr(self, "layers"):
            fresh(self)

    monkeypatch.setattr(PackedModel, "refresh", once)
    groups, before = in_between(model, packed_engine(model, max_sequences=12))
    assert largest_error(groups, (before, model)) > 1e-2


@pytest.mark.parametrize("tied", [True, False])
def test_weights_changed_in_place_between_two_calls(tied):
    """As a trainer that shares the module does: nothing of the old weights is left, the head included."""
    model = tiny_model(tie_word_embeddings=tied)
    engine = packed_engine(model)
    old = sample(engine, draws_of(), sampling=LONG)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    new = sample(engine, draws_of(), sampling=LONG)
    assert by_key(new) != by_key(old)
    np.testing.assert_allclose(*pairs(model, new, 1.0), rtol=0, atol=1e-5)


def test_bfloat16_is_as_near_to_the_trainer_as_the_plain_path():
    """In a model with some depth, where two paths share no rounding; of two layers, they still share some."""
    model = tiny_model("llama", spread=0.1, num_hidden_layers=12)
    model.module.to(torch.bfloat16)
    gaps = {}
    for fast in ("never", "always"):
        engine = LocalEngine(model, fast=fast)
        groups = sample(engine, draws_of(TEXTS[::2]), n=4, sampling=LONG)
        sampler, trainer = pairs(model, groups, 1.0)
        assert check_ratio(sampler, trainer, dtype=torch.bfloat16).passed
        gaps[fast] = float(np.abs(sampler - trainer).mean())
    assert engine.agreement is not None
    assert engine.agreement.passed
    assert gaps["always"] < 1.15 * gaps["never"], gaps


def test_padding_rows_of_the_embedding_are_never_sampled():
    model = tiny_model(extra_rows=11, tie_word_embeddings=False)
    with torch.no_grad():
        model.module.get_output_embeddings().weight[model.vocab_size :] *= 50
    groups = sample(packed_engine(model), draws_of(TEXTS), sampling=LONG)
    assert max(int(r.token_ids.max()) for r in answers(groups)) < model.vocab_size
    np.testing.assert_allclose(*pairs(model, groups[:6], 1.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gpt2", {}),
        ("gemma3", {}),
        ("lfm2", {}),
        ("granite", {}),
        ("mistral", {"sliding_window": 8}),
        ("llama", {"hidden_act": "gelu"}),
    ],
)
def test_other_architectures_take_the_plain_path(arch, changes):
    model = tiny_model(arch, **changes)
    engine = packed_engine(model)
    want = by_key(sample(LocalEngine(model, fast="never"), draws_of()))
    assert by_key(sample(engine, draws_of())) == want
    assert not can_pack(model.module)
    assert engine.agreement is None


def test_packed_weights_that_say_otherwise_are_not_used(monkeypatch):
    """An architecture that computes a little more than it shows is caught by the trial and asked itself."""
    model = tiny_model()
    scaled = Product.__call__
    monkeypatch.setattr(
        Product, "__call__", lambda self, x, activation="none": 1.01 * scaled(self, x, activation)
    )
    engine = packed_engine(model)
    groups = sample(engine, draws_of(TEXTS), sampling=LONG)
    assert engine.agreement is not None
    assert not engine.agreement.passed
    assert by_key(groups) == by_key(sample(LocalEngine(model, fast="never"), draws_of(TEXTS), sampling=LONG))


def test_tiny_models_are_left_alone_unless_asked_for(monkeypatch):
    """So that what they draw stays the same to the last bit."""
    engine = LocalEngine(tiny_model())
    sample(engine, draws_of())
    assert engine.agreement is None
    monkeypatch.setattr(agreement, "SMALLEST", 1)
    sample(engine, draws_of())
    assert engine.agreement is not None


def test_damaged_weights_still_stop_the_run():
    model = tiny_model(tie_word_embeddings=False)
    engine = packed_engine(model)
    sample(engine, draws_of(["2+3"]))
    with torch.no_grad():
        model.module.get_input_embeddings().weight[12] = torch.nan
    with pytest.raises(RunError, match=r"not finite at token \d+ of an answer"):
        sample(engine, draws_of(["2+3", "a+b"]))


def test_the_trial_uses_ragged_prompts_and_answers():
    model = tiny_model()
    result = check_packed(model, PackedModel(model.module, model.vocab_size))
    assert result.passed
    assert "16 tokens" in result.sentence
    assert 0 < result.value < 1e-5


def test_an_unknown_switch_is_refused():
    with pytest.raises(ValueError, match="fast must be one of auto, always, never"):
        LocalEngine(tiny_model(), fast="yes")
    with pytest.raises(SettingError, match=r"sampling.fast: unknown value 'allways'.*always"):
        SamplingSection(fast="allways")
