"""Properties of selection, cursor and packing over made-up groups."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.handmade import prompt_of, scored_of
from trimtab.data.cursor import PromptCursor
from trimtab.data.packing import micro_batches, pack, split_updates
from trimtab.data.selection import Reason, Selection
from trimtab.rewards.shaping import RewardScale, SoftOverlong, reward_groups
from trimtab.types import UNIFORM_TOLERANCE

value = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 0.35]), st.floats(0, 1))
answer = st.tuples(value, st.integers(0, 12))
groups = st.lists(st.lists(answer, min_size=1, max_size=6), max_size=8)


def made(groups):
    return [
        scored_of([v for v, _ in group], id=str(i), lengths=[n for _, n in group], prompt_tokens=1 + i % 5)
        for i, group in enumerate(groups)
    ]


def packed(groups):
    return pack(reward_groups(made(groups), RewardScale(), None, 100))


@given(groups)
def test_exactly_the_graded_rollouts_are_packed_once_in_order(groups):
    scored = made(groups)
    batch = packed(groups)
    graded = [
        rollout.key
        for group in scored
        for rollout, grade in zip(group.group.rollouts, group.grades, strict=True)
        if grade.graded
    ]
    assert list(batch.keys_S) == graded
    assert batch.seq_T.tolist() == sorted(batch.seq_T.tolist())
    by_group: dict[int, set[str]] = {}
    for key, group in zip(batch.keys_S, batch.group_S.tolist(), strict=True):
        by_group.setdefault(group, set()).add(key.split("#")[0])
    assert all(len(prompts) == 1 for prompts in by_group.values())
    assert sorted(by_group) == list(range(len(batch.prompts_P)))


@given(groups, st.integers(1, 12), st.integers(1, 3), st.integers(0, 5))
def test_every_sequence_is_in_exactly_one_update_of_every_epoch(groups, updates, epochs, seed):
    batch = packed(groups)
    parts = split_updates(batch, updates, epochs, seed)
    if batch.num_sequences == 0:
        assert parts == []
        return
    per_epoch = min(updates, batch.num_sequences)
    assert len(parts) == epochs * per_epoch
    assert all(parts)
    for epoch in range(epochs):
        part = [s for update in parts[epoch * per_epoch : (epoch + 1) * per_epoch] for s in update]
        assert sorted(part) == list(range(batch.num_sequences))
    if len(batch.prompts_P) >= updates:
        for part in parts:
            whole = Counter(batch.group_S.tolist())
            assert all(
                count == whole[group] for group, count in Counter(batch.group_S[part].tolist()).items()
            )


@given(groups, st.integers(1, 60))
def test_micro_batches_hold_every_sequence_once_within_the_budget(groups, budget):
    batch = packed(groups)
    parts = micro_batches(batch, budget)
    assert sorted(s for part in parts for s in part) == list(range(batch.num_sequences))
    lengths = batch.lengths_S
    cost = [int(lengths[s]) + len(batch.prompts_P[batch.group_S[s]]) for s in range(batch.num_sequences)]
    for part in parts:
        assert part
        assert len(part) == 1 or len(part) * max(cost[s] for s in part) <= budget
    order = [cost[s] for part in parts for s in part]
    assert order == sorted(order, reverse=True)


@given(st.lists(value, max_size=9), st.floats(0, 0.45), st.floats(0.55, 1))
def test_a_verdict_is_about_the_whole_group_whatever_its_order_and_lengths(values, low, high):
    selection = Selection(low=low, high=high)
    verdict = selection.verdict(scored_of(values))
    lengths = list(range(len(values)))
    assert selection.verdict(scored_of(values[::-1], lengths=lengths)) == verdict
    graded = np.array([v for v in values if v is not None])
    if verdict.keep:
        assert np.ptp(graded) > UNIFORM_TOLERANCE
        assert low - 1e-5 <= graded.mean() <= high + 1e-5
    elif len(graded) >= 2 and np.ptp(graded) > UNIFORM_TOLERANCE:
        assert verdict.reason in (Reason.BELOW_BAND, Reason.ABOVE_BAND)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(2, 16), st.data())
def test_case_4_one_against_the_rest_is_kept_whole(one, others, size, data):
    at = data.draw(st.integers(0, size - 1))
    values = [others] * size
    values[at] = one
    scored = scored_of(values)
    assert Selection().verdict(scored).keep == (abs(one - others) > UNIFORM_TOLERANCE)
    batch = pack(reward_groups([scored], RewardScale(), None, 100))
    assert batch.num_sequences == size


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.data())
def test_shaping_never_changes_a_verdict(values, data):
    lengths = data.draw(st.lists(st.integers(0, 100), min_size=len(values), max_size=len(values)))
    scored = scored_of(values, lengths=lengths)
    before = Selection().verdict(scored)
    (rewarded,) = reward_groups([scored], RewardScale(1, -1), SoftOverlong(20), 100)
    assert Selection().verdict(rewarded.scored) == before
    assert ((rewarded.shaping <= 0) & (rewarded.shaping >= -1)).all()
    np.testing.assert_allclose(rewarded.rewards - rewarded.shaping, 2 * np.array(values) - 1, atol=1e-12)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 9),
)
def test_a_resumed_cursor_draws_what_the_uninterrupted_one_draws(ids, before, after, seed):
    prompts = [prompt_of(str(i)) for i in ids]
    whole, first, second = (PromptCursor(prompts, seed) for _ in range(3))
    expected = [whole.draw().key for _ in range(before + after)]
    drawn = [first.draw().key for _ in range(before)]
    second.restore(json.loads(json.dumps(first.state())))
    drawn += [second.draw().key for _ in range(after)]
    assert drawn == expected
    assert len(set(drawn)) == len(drawn), "no two groups of a run have the same key"
