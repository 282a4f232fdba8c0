"""Packing: ungraded answers never enter, filtered ones keep their place, cuts are by whole groups."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.handmade import scored_of
from trimtab.data.packing import micro_batches, pack, split_updates
from trimtab.errors import SettingError
from trimtab.rewards.shaping import RewardScale, reward_groups


def packed(*scored, overlong_filter=False):
    return pack(reward_groups(scored, RewardScale(1, -1), None, 100), overlong_filter=overlong_filter)


def test_a_batch_by_hand():
    batch = packed(
        scored_of([1, 0], id="a", lengths=[2, 1]), scored_of([0.5], id="b", lengths=[3], version=4)
    )
    assert batch.seq_T.tolist() == [0, 0, 1, 2, 2, 2]
    assert batch.group_S.tolist() == [0, 0, 1]
    assert batch.token_ids_T.tolist() == [2, 3, 2, 2, 3, 4]
    assert batch.rewards_S.tolist() == [1.0, -1.0, 0.0]
    assert batch.outcomes_S.tolist() == [1.0, 0.0, 0.5]
    assert batch.version_S.tolist() == [0, 0, 4]
    assert batch.keys_S == ("a#0/0", "a#0/1", "b#0/0")
    assert [len(prompt) for prompt in batch.prompts_P] == [4, 4]
    dtypes = (
        batch.rewards_S.dtype,
        batch.rollout_logprobs_T.dtype,
        batch.mask_T.dtype,
        batch.token_ids_T.dtype,
    )
    assert dtypes == (torch.float64, torch.float32, torch.bool, torch.int64)


def test_case_6_ungraded_rollouts_never_enter_and_an_ungraded_group_leaves_no_trace():
    batch = packed(
        scored_of([None, 1, None, None], id="a"), scored_of([None, None], id="b"), scored_of([0, 1], id="c")
    )
    assert batch.keys_S == ("a#0/1", "c#0/0", "c#0/1")
    assert batch.group_S.tolist() == [0, 1, 1]
    assert len(batch.prompts_P) == 2
    assert not batch.rewards_S.isnan().any()


def test_two_draws_of_one_prompt_stay_two_groups():
    batch = packed(scored_of([1, 0], draw=0), scored_of([1, 0], draw=1))
    assert batch.group_S.tolist() == [0, 0, 1, 1]
    assert len(set(batch.keys_S)) == 4


def test_case_15_a_filtered_answer_loses_its_tokens_and_keeps_its_place():
    scored = scored_of([1, 0, 0, 1], lengths=[2, 3, 4, 2], truncated=[1, 2])
    plain, filtered = packed(scored), packed(scored, overlong_filter=True)
    assert filtered.num_sequences == plain.num_sequences == 4
    assert filtered.trained_S.tolist() == [2, 0, 0, 2]
    assert filtered.lengths_S.tolist() == [2, 3, 4, 2], "lengths are those of the answers"
    assert filtered.rewards_S.tolist() == plain.rewards_S.tolist()
    assert plain.trained_S.tolist() == [2, 3, 4, 2]
    assert scored.group.rollouts[1].mask.all(), "the rollout itself is left as it was"


def test_an_empty_answer_and_an_empty_step():
    batch = packed(scored_of([1, 0, 0], lengths=[0, 2, 0]))
    assert batch.lengths_S.tolist() == [0, 2, 0]
    assert micro_batches(batch, 6) == [[1], [0], [2]]
    empty = packed()
    assert (empty.num_sequences, empty.num_tokens) == (0, 0)
    assert split_updates(empty, updates=4, epochs=2, seed=0) == []
    assert micro_batches(empty, 100) == []


def test_updates_hold_whole_groups_and_epochs_differ():
    batch = packed(*(scored_of([1, 0, 0], id=str(i)) for i in range(5)))
    parts = split_updates(batch, updates=2, epochs=2, seed=0)
    assert [len(part) for part in parts] == [6, 9, 6, 9]
    for part in parts:
        groups = batch.group_S[part]
        assert all((groups == group).sum() == 3 for group in groups.unique())
    assert parts[:2] != parts[2:]
    assert split_updates(batch, updates=2, epochs=2, seed=0) == parts
    assert split_updates(batch, updates=2, epochs=2, seed=1) != parts


def test_more_updates_than_groups_cut_groups_and_more_than_sequences_give_fewer_updates():
    batch = packed(scored_of([1, 0, 0, 0], id="a"), scored_of([1, 0, 0, 0], id="b"))
    assert sorted(map(len, split_updates(batch, updates=3, epochs=1, seed=0))) == [2, 3, 3]
    assert [len(part) for part in split_updates(batch, updates=20, epochs=1, seed=0)] == [1] * 8


def test_one_update_holds_everything_in_order():
    batch = packed(*(scored_of([1, 0], id=str(i)) for i in range(4)))
    assert split_updates(batch, updates=1, epochs=1, seed=7) == [list(range(8))]


def test_micro_batches_are_by_padded_length_longest_first():
    batch = packed(scored_of([1, 0, 0, 1, 0], lengths=[6, 16, 6, 1, 5], prompt_tokens=4))
    assert micro_batches(batch, 20) == [[1], [0, 2], [4, 3]]
    assert micro_batches(batch, 1) == [[1], [0], [2], [4], [3]]
    assert micro_batches(batch, 10_000) == [[1, 0, 2, 4, 3]]


def test_impossible_cuts_are_refused():
    batch = packed(scored_of([1, 0]))
    for bad in (lambda: split_updates(batch, 0, 1, 0), lambda: split_updates(batch, 1, 0, 0)):
        with pytest.raises(SettingError):
            bad()
    with pytest.raises(SettingError):
        micro_batches(batch, 0)


def test_arrays_are_copied_so_that_no_later_stage_can_change_the_record():
    scored = scored_of([1, 0])
    batch = packed(scored)
    batch.token_ids_T.fill_(0)
    batch.prompts_P[0].fill_(0)
    np.testing.assert_array_equal(scored.group.rollouts[0].token_ids, [2, 3, 4])
    np.testing.assert_array_equal(scored.group.prompt.token_ids, [2, 3, 4, 5])
