"""Several answers in one row: the same numbers and gradients as a row for each, and only where it pays."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.tiny import tiny_model
from trimtab.errors import SettingError
from trimtab.models import LoadedModel
from trimtab.trainer import TrainerConfig
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.sharing import ROW, Cost, can_share, plan, shared_rows
from trimtab.types import Batch

CHEAP_ATTENTION = Cost(token=1e9, pair=1.0)
DEAR_ATTENTION = Cost(token=1.0, pair=1e9)


def batch_of(groups: int, answers: int, prompt: int, longest: int, *, seed: int = 0) -> Batch:
    """Groups of ragged answers to ragged prompts, the sequences of all groups shuffled; one is empty."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def ids(length: int) -> Tensor:
        return torch.randint(2, 30, (length,), generator=generator)

    size = groups * answers
    lengths = [0, *(drawn(1, longest) for _ in range(size - 1))]
    group_S = (torch.arange(size) // answers)[torch.randperm(size, generator=generator)]
    zeros_S = torch.zeros(size, dtype=torch.float64)
    return Batch(
        prompts_P=tuple(ids(drawn(2, prompt)) for _ in range(groups)),
        token_ids_T=ids(sum(lengths)),
        seq_T=torch.repeat_interleave(torch.arange(size), torch.tensor(lengths)),
        mask_T=torch.ones(sum(lengths), dtype=torch.bool),
        rollout_logprobs_T=torch.zeros(sum(lengths)),
        group_S=group_S,
        rewards_S=zeros_S,
        outcomes_S=zeros_S,
        truncated_S=torch.zeros(size, dtype=torch.bool),
        version_S=torch.zeros(size, dtype=torch.int64),
        keys_S=tuple(f"p{int(group)}#0/{i}" for i, group in enumerate(group_S)),
    )


def read(model: LoadedModel, batch: Batch, parts: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies, and the gradient of a weighted sum of both."""
    reader = Reader(model, temperature=0.7)
    weights_T = torch.randn(batch.num_tokens, generator=torch.Generator().manual_seed(9))
    logprobs_T, entropy_T = torch.zeros(batch.num_tokens), torch.zeros(batch.num_tokens)
    placed = batch.with_columns(place_T=torch.arange(batch.num_tokens))
    model.module.zero_grad()
    for sequences in parts:
        part = placed.select(sequences)
        out, _ = reader(part, Asked(policy_grad=True, entropy_grad=True))
        place = part.columns["place_T"]
        logprobs_T[place], entropy_T[place] = out.logprobs_T.detach(), out.entropy_T.detach()
        (out.logprobs_T * weights_T[place] + 0.1 * out.entropy_T).sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None])
    return logprobs_T, entropy_T, gradient


@pytest.mark.parametrize("arch", ["qwen3", "llama", "granite", "cohere", "gpt2"])
@pytest.mark.parametrize("seed", [0, 1])
def test_shared_rows_give_the_numbers_and_gradients_of_plain_ones(arch: str, seed: int):
    model = tiny_model(arch)
    batch = batch_of(4, 5, 20, 9, seed=seed)
    wanted_S = (batch.lengths_S > 0).nonzero().flatten()
    shared, parts = plan(batch, wanted_S, 90, CHEAP_ATTENTION)
    assert ROW in shared.columns
    assert len(parts) > 1
    found = read(model, shared, parts)
    expected = read(model, batch, [[s] for s in wanted_S.tolist()])
    assert torch.allclose(found[0], expected[0], rtol=0, atol=1e-5)
    assert torch.allclose(found[1], expected[1], rtol=0, atol=1e-5)
    assert float((found[2] - expected[2]).norm() / expected[2].norm()) < 1e-6


@pytest.mark.parametrize("arch", ["gemma2", "gemma3", "lfm2"])
def test_what_is_not_full_attention_keeps_plain_rows(arch: str):
    model = tiny_model(arch)
    assert Reader(model, temperature=1.0, share_prompts=True).cost is None


def test_another_attention_implementation_keeps_plain_rows():
    model = tiny_model("llama")
    assert can_share(model, Reader(model, temperature=1.0).backbone)
    model.module.set_attn_implementation("eager")
    assert not can_share(model, Reader(model, temperature=1.0).backbone)


def test_the_plan_shares_only_where_it_pays():
    batch = batch_of(3, 4, 16, 6)
    every_S = torch.arange(batch.num_sequences)
    assert ROW not in plan(batch, every_S, 500, None)[0].columns
    assert ROW not in plan(batch, every_S, 500, DEAR_ATTENTION)[0].columns
    assert ROW in plan(batch, every_S, 500, CHEAP_ATTENTION)[0].columns


@pytest.mark.parametrize("limit", [40, 90, 1000])
def test_every_wanted_sequence_is_in_one_part_rows_whole_and_within_the_budget(limit: int):
    batch = batch_of(5, 6, 14, 8)
    wanted_S = (batch.lengths_S > 1).nonzero().flatten()
    shared, parts = plan(batch, wanted_S, limit, CHEAP_ATTENTION)
    assert sorted(s for part in parts for s in part) == wanted_S.tolist()
    rows = shared.columns[ROW]
    for part in parts:
        assert {int(rows[s]) for s in part}.isdisjoint(
            int(rows[s]) for other in parts if other is not part for s in other
        )
        laid = shared_rows(shared.select(part))
        assert laid.input_ids_BL.numel() <= limit


def test_a_row_never_mixes_groups():
    batch = batch_of(4, 4, 10, 5)
    shared, _ = plan(batch, torch.arange(batch.num_sequences), 300, CHEAP_ATTENTION)
    rows = shared.columns[ROW].tolist()
    groups = {row: {int(batch.group_S[s]) for s in range(len(rows)) if rows[s] == row} for row in rows}
    assert all(len(held) == 1 for held in groups.values())


def test_an_answer_sees_its_prompt_and_itself_only():
    batch = batch_of(1, 3, 4, 3)
    shared, parts = plan(batch, torch.arange(3), 100, CHEAP_ATTENTION)
    laid = shared_rows(shared.select(parts[0]))
    mask = laid.mask_BQK[0, 0]
    prompt = len(batch.prompts_P[0])
    longest = int(batch.lengths_S[parts[0][0]])
    last_of_first = prompt + longest - 1
    assert mask[last_of_first, : last_of_first + 1].all()
    first_of_second = prompt + longest
    assert mask[first_of_second, :prompt].all()
    assert not mask[first_of_second, prompt:first_of_second].any()
    assert int(laid.positions_BL[0, first_of_second]) == prompt


def test_the_setting_has_two_words():
    assert TrainerConfig(share_prompts="never").share_prompts == "never"
    with pytest.raises(SettingError, match="share_prompts"):
        TrainerConfig(share_prompts="yes")  # type: ignore[arg-type]  # what a recipe could hold
