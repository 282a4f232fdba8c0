"""Rows of a micro-batch: every token stands where its length says, and is predicted from just before."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training import ragged_batch
from trimtab.errors import DataError
from trimtab.trainer.layout import padded_rows, to_device

GROUPS = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 7), min_size=1, max_size=4)), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS, seed=st.integers(0, 99))
def test_rows_hold_prompt_and_answer_and_states_point_at_the_predecessor(groups, seed):
    prompts, answers = [p for p, _ in groups], [a for _, a in groups]
    batch = ragged_batch(50, prompts=prompts, answers=answers, seed=seed)
    layout = padded_rows(batch)
    rows, width = layout.input_ids_BL.shape
    assert rows == batch.num_sequences
    assert width == max(p + length for p, lengths in groups for length in lengths)
    assert layout.tokens == sum(p + length for p, lengths in groups for length in lengths)
    flat, t = layout.input_ids_BL.flatten(), 0
    for s in range(batch.num_sequences):
        prompt = batch.prompts_P[int(batch.group_S[s])]
        answer = batch.token_ids_T[batch.seq_T == s]
        both = torch.cat([prompt, answer])
        assert torch.equal(layout.input_ids_BL[s, : len(both)], both)
        assert not layout.input_ids_BL[s, len(both) :].any()
        for k in range(len(answer)):
            assert int(layout.state_T[t]) == s * width + len(prompt) - 1 + k
            assert int(flat[layout.state_T[t] + 1]) == int(batch.token_ids_T[t])
            t += 1
        assert int(layout.last_S[s]) == s * width + len(both) - 1


def test_a_selected_part_keeps_its_own_order():
    batch = ragged_batch(50)
    part = batch.select([5, 0, 3])
    layout = padded_rows(part)
    for row, s in enumerate([5, 0, 3]):
        prompt = batch.prompts_P[int(batch.group_S[s])]
        answer = batch.token_ids_T[batch.seq_T == s]
        assert torch.equal(layout.input_ids_BL[row, len(prompt) : len(prompt) + len(answer)], answer)


def test_padding_is_the_share_of_the_rows_without_a_token():
    batch = ragged_batch(50, prompts=(2,), answers=((1, 4),))
    assert padded_rows(batch).padding == pytest.approx(3 / 12)


def test_a_prompt_without_tokens_is_refused_by_the_rollouts_key():
    batch = ragged_batch(50)
    empty = (batch.prompts_P[0], batch.prompts_P[1][:0], batch.prompts_P[2])
    with pytest.raises(DataError, match="p1#0/3"):
        padded_rows(dataclasses.replace(batch, prompts_P=empty))


def test_no_sequence_gives_no_row():
    assert padded_rows(ragged_batch(50).select([])).input_ids_BL.shape == (0, 0)


def test_to_device_moves_every_tensor_and_keeps_the_rest():
    batch = ragged_batch(50).with_columns(advantages_T=torch.zeros(40, dtype=torch.float64))
    assert to_device(batch, torch.device("cpu")) is batch
    moved = to_device(batch, torch.device("meta"))
    tensors = [v for f in dataclasses.fields(moved) if isinstance(v := getattr(moved, f.name), torch.Tensor)]
    assert {tensor.device.type for tensor in [*tensors, *moved.columns.values()]} == {"meta"}
    assert moved.keys_S == batch.keys_S
