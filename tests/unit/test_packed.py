"""Packed tokens and trimtab's own passes: the numbers and gradients of transformers, or not at all."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
import torch
import transformers
from torch import Tensor

from tests.tiny import char_tokenizer, tiny_model
from tests.unit.test_sharing import batch_of
from trimtab.errors import DataError
from trimtab.models import LoadedModel, as_loaded
from trimtab.ops.logprobs import logprobs_and_entropy
from trimtab.ops.packed_attention import Block
from trimtab.ops.vocabulary import weight_logprobs
from trimtab.trainer import packed
from trimtab.trainer.critic import value_head
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.packed import packed_parts, packed_tokens
from trimtab.types import Batch

ASKED = Asked(policy_grad=True, entropy_grad=True)


def made(kind: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A small random model of a kind that is computed fast; qwen2 has biases, qwen3 norms of heads."""
    if kind in ("llama", "qwen3"):
        model = tiny_model(kind)
    else:
        names = {"mistral": "Mistral", "qwen2": "Qwen2"}
        config = getattr(transformers, f"{names[kind]}Config")(
            vocab_size=60,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=False,
            sliding_window=None,
        )
        torch.manual_seed(3)
        module = getattr(transformers, f"{names[kind]}ForCausalLM")(config)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
        model = as_loaded(module, char_tokenizer())
    cast("Any", model.module).to(dtype)
    return model


def full(batch: Batch) -> Batch:
    """Without the sequence that has no token."""
    return batch.select((batch.lengths_S > 0).nonzero().flatten())


def read(model: LoadedModel, reader: Reader, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies, and the gradient of a weighted sum of both."""
    weights_T = torch.randn(batch.num_tokens, generator=torch.Generator().manual_seed(9))
    model.module.zero_grad()
    out, _ = reader(batch, ASKED)
    (out.logprobs_T * weights_T + 0.1 * out.entropy_T * weights_T).sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None])
    return out.logprobs_T.detach(), out.entropy_T.detach(), gradient


def apart(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach(), expected.detach()
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_numbers_and_gradients_are_those_of_transformers(kind: str, dtype: torch.dtype):
    model, batch = made(kind, dtype), full(batch_of(4, 5, 20, 9))
    fast = Reader(model, temperature=0.7, fast=True)
    assert fast.decoder is not None
    expected = read(model, Reader(model, temperature=0.7), batch)
    for found, one in zip(read(model, fast, batch), expected, strict=True):
        assert found.dtype == one.dtype
        assert apart(found, one) < 2e-6, "transformers takes its norms in float32, also in float64"


def test_the_padding_id_gets_no_gradient_from_below_where_the_module_gives_none():
    """A row of zeros under a norm would get a gradient of thousands; transformers leaves such a row out."""
    model, batch = made("llama"), full(batch_of(4, 5, 20, 9))
    embedding = cast("Any", model.module).base_model.embed_tokens
    embedding.padding_idx = int(batch.token_ids_T[0])
    with torch.no_grad():
        embedding.weight[embedding.padding_idx] = 0.0
    fast = Reader(model, temperature=0.7, fast=True)
    assert fast.decoder is not None
    expected = read(model, Reader(model, temperature=0.7), batch)
    for found, one in zip(read(model, fast, batch), expected, strict=True):
        assert apart(found, one) < 2e-6


def test_small_blocks_and_recomputed_layers_change_nothing(monkeypatch: pytest.MonkeyPatch):
    model, batch = made("qwen3"), full(batch_of(4, 5, 20, 30, seed=2))
    expected = read(model, Reader(model, temperature=0.7, fast=True), batch)
    monkeypatch.setattr(packed, "QUERIES", 4)
    monkeypatch.setattr(packed, "SCORES", 300)
    again = Reader(model, temperature=0.7, fast=True, recompute_layers=True)
    for found, one in zip(read(model, again, batch), expected, strict=True):
        assert apart(found, one) < 2e-6


def test_bfloat16_is_as_near_to_float32_as_transformers_is():
    batch = full(batch_of(4, 5, 20, 30))
    low, high = made("llama", torch.bfloat16), made("llama")
    with torch.no_grad():
        for p, q in zip(high.module.parameters(), low.module.parameters(), strict=True):
            p.copy_(q)
    exact = read(high, Reader(high, temperature=0.7), batch)
    plain = read(low, Reader(low, temperature=0.7), batch)
    fast = read(low, Reader(low, temperature=0.7, fast=True), batch)
    for found, other, one in zip(fast, plain, exact, strict=True):
        errors = [float((numbers.float() - one).norm() / one.norm()) for numbers in (found, other)]
        assert 0.0 < errors[0] < 1.3 * errors[1]


def test_values_and_bootstrap_are_those_of_plain_rows():
    model, batch = made("qwen3"), batch_of(4, 5, 20, 9)
    critic = value_head(model, detached=False, seed=0)
    asked = Asked(values=True, critic_grad=True, policy_grad=True)
    found = Reader(model, temperature=1.0, critic=critic, fast=True)(batch, asked)
    expected = Reader(model, temperature=1.0, critic=critic)(batch, asked)
    for one, other in ((found[0].values_T, expected[0].values_T), (found[1], expected[1])):
        assert one is not None
        assert other is not None
        assert apart(one, other) < 2e-6


@pytest.mark.parametrize("arch", ["gpt2", "granite", "cohere", "gemma2", "gemma3", "lfm2"])
def test_other_architectures_are_left_to_transformers(arch: str):
    assert Reader(tiny_model(arch), temperature=1.0, fast=True).decoder is None


def test_what_something_was_done_to_is_left_to_transformers():
    def refused(model: LoadedModel) -> bool:
        return Reader(model, temperature=1.0, fast=True).decoder is None

    model = tiny_model("llama")
    assert not refused(model)
    assert Reader(model, temperature=1.0).decoder is None, "the switch"
    assert Reader(model, temperature=1.0, fast=True, autocast=True).decoder is None
    layer: torch.nn.Module = model.module.base_model.layers[1]  # type: ignore[union-attr, index, assignment]  # a ModuleList
    handle = layer.register_forward_hook(lambda *_: None)
    assert refused(model)
    handle.remove()

    class Doubled(torch.nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2.0 * super().forward(input)

    layer.mlp.gate_proj = Doubled(32, 64, bias=False)  # type: ignore[union-attr]  # a module
    assert refused(model)
    assert refused(tiny_model("qwen3", sliding_window=8, use_sliding_window=True, max_window_layers=0))


def test_prompts_stand_once_and_last_tokens_only_where_asked():
    batch = full(batch_of(3, 4, 9, 6))
    prompts = sum(len(batch.prompts_P[group]) for group in set(batch.group_S.tolist()))
    short, whole = (packed_tokens(batch, heads=4, last=last) for last in (False, True))
    assert len(whole.ids_N) == prompts + batch.num_tokens
    assert len(short.ids_N) == prompts + batch.num_tokens - batch.num_sequences
    assert len(whole.last_S) == batch.num_sequences
    assert len(short.last_S) == 0
    for laid in (short, whole):
        covered = sorted((block.begin, block.end) for block in laid.blocks)
        assert [begin for begin, _ in covered] == [0, *(end for _, end in covered[:-1])]
        assert covered[-1][1] == len(laid.ids_N)
        assert sum(rows_of(block) for block in laid.blocks) >= len(laid.ids_N)


def rows_of(block: Block) -> int:
    return block.rows * block.width


def test_a_prompt_without_a_token_is_refused():
    batch = batch_of(2, 2, 5, 5)
    with pytest.raises(DataError, match="no token"):
        packed_tokens(
            dataclasses.replace(batch, prompts_P=(batch.prompts_P[0][:0], batch.prompts_P[1])),
            heads=2,
            last=False,
        )


@pytest.mark.parametrize("limit", [1, 40, 250, 10_000])
def test_micro_batches_hold_every_sequence_once_within_the_budget(limit: int):
    batch = batch_of(4, 8, 20, 30)
    wanted_S = (batch.lengths_S > 0).nonzero().flatten()
    parts = packed_parts(batch, wanted_S, limit)
    assert sorted(s for part in parts for s in part) == wanted_S.tolist()
    sizes = []
    for part in parts:
        groups = {int(batch.group_S[s]) for s in part}
        sizes.append(sum(len(batch.prompts_P[g]) for g in groups) + int(batch.lengths_S[part].sum()))
        assert sizes[-1] <= limit or len(part) == 1
    if limit == 250:
        assert min(sizes) > 0.6 * max(sizes), "equally full"
    assert packed_parts(batch, wanted_S[:0], limit) == []


@pytest.mark.parametrize(("vocab_size", "temperature"), [(300, 1.0), (290, 0.6)])
@pytest.mark.parametrize("entropy_grad", [False, True])
def test_pieces_of_the_vocabulary_give_what_whole_logits_give(
    monkeypatch: pytest.MonkeyPatch, vocab_size: int, temperature: float, entropy_grad: bool
):
    monkeypatch.setattr("trimtab.ops.vocabulary.PIECE", 64)
    monkeypatch.setattr("trimtab.ops.vocabulary.TILE", 640)
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(37, 16, generator=random, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(300, 16, generator=random, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, vocab_size, (37,), generator=random)
    slopes = torch.randn(2, 37, generator=random, dtype=torch.float64)
    settings = {"temperature": temperature, "vocab_size": vocab_size, "entropy_grad": entropy_grad}

    def taken(found: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        loss = (found[0] * slopes[0]).sum() + (found[1] * slopes[1]).sum() * entropy_grad
        return (*found, *torch.autograd.grad(loss, (hidden, weight)))

    expected = taken(logprobs_and_entropy(hidden, lambda h: h @ weight.t(), targets, **settings))
    found = taken(weight_logprobs(hidden, weight, targets, **settings))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_a_token_as_good_as_certain_has_no_positive_log_probability():
    hidden, weight = torch.full((1, 8), 40.0), torch.eye(8)
    weight[3] = 8.0
    logprobs, entropy = weight_logprobs(hidden, weight, torch.tensor([3]), temperature=1.0, vocab_size=8)
    assert float(logprobs) == 0.0
    assert float(entropy) == pytest.approx(0.0, abs=1e-6)
