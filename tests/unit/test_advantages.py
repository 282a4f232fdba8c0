"""Group baselines and GAE: hand numbers, the traps of floating point, and plain loops beside them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import padded
from tests.property.steps import Step, packed, steps
from trimtab.advantages.gae import GAE, discounted_sums, whitened
from trimtab.advantages.group import GroupRelative, LeaveOneOut, total_rewards
from trimtab.errors import SettingError
from trimtab.rewards.kl import KLInReward


def advantages(estimator, rewards, groups=None) -> list[float]:
    groups = groups or [0] * len(rewards)
    return estimator.advantages(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups, dtype=torch.int64)
    ).tolist()


def step_of(rewards, groups, lengths=None) -> Step:
    lengths = lengths or [1] * len(rewards)
    rows = [[-1.0] * n for n in lengths]
    return Step(groups, rewards, [[True] * n for n in lengths], rows, rows, rows, rows, rows, rows)


def test_one_right_of_four():
    assert advantages(GroupRelative(), [1, 0, 0, 0]) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert advantages(GroupRelative("none"), [1, 0, 0, 0]) == [0.75, -0.25, -0.25, -0.25]
    assert advantages(LeaveOneOut(), [1, 0, 0, 0]) == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    assert advantages(LeaveOneOut("std"), [1, 0, 0, 0])[0] == 1.0
    assert advantages(LeaveOneOut("std"), [1, 0, 0, 0])[1] == pytest.approx(-0.57735, abs=1e-5)


def test_sixty_four_equal_float32_rewards_are_no_signal():
    rewards = np.full(64, 0.6, dtype=np.float32).astype(float).tolist()
    for estimator in (GroupRelative(), GroupRelative(eps=0.0), LeaveOneOut(), LeaveOneOut("std")):
        assert advantages(estimator, rewards) == [0.0] * 64


def test_rounding_noise_within_a_group_is_no_signal():
    rewards = [0.7 + i * 1e-8 for i in range(8)]
    for estimator in (GroupRelative(), LeaveOneOut("std")):
        assert advantages(estimator, rewards) == [0.0] * 8
    assert max(advantages(GroupRelative(), [0.7, 0.7, 0.7, 0.7001])) > 1.0


def test_leave_one_out_scale_is_one_where_the_others_are_uniform():
    found = advantages(LeaveOneOut("std"), [0.0] + [0.35] * 7)
    assert max(abs(a) for a in found) < 10
    assert found[0] == pytest.approx(-0.35)
    assert found[1:] == pytest.approx([0.05 / (0.35 / 7**0.5)] * 7, rel=1e-4)
    noisy = advantages(
        LeaveOneOut("std"), [0.0] + [float(np.float32(0.35) * np.float32(1.0)) for _ in range(7)]
    )
    assert max(abs(a) for a in noisy) < 10
    above = advantages(LeaveOneOut("std"), [float(np.float32(0.35))] * 7 + [0.95])
    assert max(abs(a) for a in above) < 10, "summed in float32, the last one would be 3693"


def test_a_lone_answer_gets_zero_and_never_its_raw_reward():
    for estimator in (GroupRelative(), GroupRelative("none"), LeaveOneOut(), LeaveOneOut("std")):
        assert advantages(estimator, [1.0]) == [0.0]
        assert advantages(estimator, [1.0, 0.5, 0.2], [0, 1, 1])[0] == 0.0
        assert advantages(estimator, []) == []


def test_groups_are_told_apart_by_id_not_by_position():
    mixed = advantages(GroupRelative(), [1, 5, 0, 7, 0], [0, 1, 0, 1, 0])
    assert [mixed[i] for i in (0, 2, 4)] == pytest.approx(advantages(GroupRelative(), [1, 0, 0]))
    assert [mixed[i] for i in (1, 3)] == pytest.approx(advantages(GroupRelative(), [5, 7]))


def test_nan_reward_spoils_its_own_group_only_and_stays_visible():
    found = advantages(GroupRelative(), [float("nan"), 1.0, 0.0, 1.0], [0, 0, 1, 1])
    assert np.isnan(found[0])
    assert np.isnan(found[1])
    assert found[2:] == pytest.approx([-0.70710, 0.70710], abs=1e-4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(step=steps(), binary=st.booleans())
def test_group_baselines_equal_plain_loops(step, binary):
    rewards = [float(r > 0) for r in step.rewards] if binary else step.rewards
    step = dataclasses.replace(step, rewards=rewards)
    batch = packed(step)
    for estimator, expected_S in (
        (GroupRelative(), padded.group_advantages(rewards, step.groups, std=True)),
        (GroupRelative("none"), padded.group_advantages(rewards, step.groups, std=False)),
        (LeaveOneOut(), padded.leave_one_out(rewards, step.groups, std=False)),
        (LeaveOneOut("std"), padded.leave_one_out(rewards, step.groups, std=True)),
    ):
        assert advantages(estimator, rewards, step.groups) == pytest.approx(expected_S, abs=1e-11)
        column_T = estimator(batch)["advantages_T"]
        assert column_T.dtype == torch.float64
        tokens = [a if on else 0.0 for a, row in zip(expected_S, step.mask, strict=True) for on in row]
        assert column_T.tolist() == pytest.approx(tokens, abs=1e-11)


def test_a_kl_penalty_in_the_reward_is_summed_over_the_trained_tokens():
    step = step_of([1.0, 0.0], [0, 0], lengths=[2, 1])
    step = dataclasses.replace(step, old=[[-1.0, -1.0], [-1.0]], ref=[[-2.0, -3.0], [-0.5]])
    batch = packed(step)
    kl_T = KLInReward(0.1)(batch)
    assert kl_T.dtype == torch.float64
    assert kl_T.tolist() == pytest.approx([-0.1, -0.2, 0.05])
    batch = batch.with_columns(kl_rewards_T=kl_T)
    assert total_rewards(batch).tolist() == pytest.approx([0.7, 0.05])
    assert GroupRelative("none")(batch)["advantages_T"].tolist() == pytest.approx([0.325, 0.325, -0.325])
    assert KLInReward(0.1, "k3")(batch).max() <= 0.0


# ----------------------------------------------------------------------------------------------- GAE
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    step=steps(max_length=9),
    gamma=st.sampled_from([1.0, 0.9, 0.5]),
    lam=st.sampled_from([1.0, 0.95, 0.0]),
    bootstrap=st.booleans(),
)
def test_gae_equals_a_loop_backwards_over_the_trained_tokens(step, gamma, lam, bootstrap):
    batch = packed(step)
    ends = torch.arange(1, batch.num_sequences + 1, dtype=torch.float64)
    truncated_S = torch.arange(batch.num_sequences) % 2 == 0
    batch = dataclasses.replace(batch, truncated_S=truncated_S).with_columns(bootstrap_S=ends)
    found = GAE(gamma=gamma, lam=lam, bootstrap_truncated=bootstrap)(batch)
    b = padded.Padded.of(step)
    for i in b.answers:
        tokens = b.tokens(i)
        rewards = [0.0] * len(tokens)
        if tokens:
            rewards[-1] = step.rewards[i]
        after = float(ends[i]) if bootstrap and truncated_S[i] else 0.0
        adv, ret = padded.gae(rewards, [step.values[i][t] for t in tokens], gamma, lam, after)
        own_T = (batch.seq_T == i) & batch.mask_T
        assert found["advantages_T"][own_T].tolist() == pytest.approx(adv, abs=1e-12)
        assert found["returns_T"][own_T].tolist() == pytest.approx(ret, abs=1e-12)
    for column_T in found.values():
        assert column_T.dtype == torch.float64
        assert not column_T[~batch.mask_T].any()


def test_gae_steps_over_tool_tokens_and_pays_at_the_last_trained_one():
    step = Step(
        groups=[0],
        rewards=[1.0],
        mask=[[True, False, True, False]],
        logp=[[-1.0] * 4],
        old=[[-1.0] * 4],
        ref=[[-1.0] * 4],
        entropy=[[1.0] * 4],
        values=[[0.5, 9.0, 0.25, 9.0]],
        new_values=[[0.0] * 4],
    )
    found = GAE(gamma=1.0, lam=1.0)(packed(step))
    assert found["advantages_T"].tolist() == pytest.approx([0.5, 0.0, 0.75, 0.0])
    assert found["returns_T"].tolist() == pytest.approx([1.0, 0.0, 1.0, 0.0])


def test_doubling_equals_a_plain_scan_over_long_sequences():
    generator = torch.Generator().manual_seed(0)
    seq_K = torch.repeat_interleave(torch.arange(4), torch.tensor([1, 700, 0, 33]))
    x_K = torch.randn(len(seq_K), generator=generator, dtype=torch.float64)
    expected, carried, previous = [0.0] * len(seq_K), 0.0, -1
    for t in reversed(range(len(seq_K))):
        carried = float(x_K[t]) + (0.99 * carried if int(seq_K[t]) == previous else 0.0)
        expected[t], previous = carried, int(seq_K[t])
    torch.testing.assert_close(
        discounted_sums(x_K, seq_K, 0.99), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert torch.equal(discounted_sums(x_K, seq_K, 0.0), x_K)


def test_whitening_uses_trained_tokens_only_and_leaves_small_batches_alone():
    step = step_of([1.0, 0.0], [0, 0], lengths=[3, 2])
    step = dataclasses.replace(
        step, mask=[[True, False, True], [True, True]], values=[[0.3, 50.0, 0.1], [0.2, 0.4]]
    )
    plain = GAE(whiten=False)(packed(step))
    white = GAE(whiten=True)(packed(step))
    kept = plain["advantages_T"][packed(step).mask_T]
    expected = (kept - kept.mean()) / (kept.std() + 1e-8)
    torch.testing.assert_close(white["advantages_T"][packed(step).mask_T], expected)
    torch.testing.assert_close(white["returns_T"], plain["returns_T"])
    assert white["advantages_T"][1] == 0.0
    one = torch.tensor([0.7], dtype=torch.float64)
    assert torch.equal(whitened(one), one)
    assert torch.equal(whitened(one.expand(5)), torch.zeros(5, dtype=torch.float64))
    assert whitened(torch.zeros(0, dtype=torch.float64)).shape == (0,)


def test_what_the_estimators_refuse():
    for make in (
        lambda: GroupRelative("mean"),
        lambda: GroupRelative(eps=-1.0),
        lambda: LeaveOneOut("variance"),
        lambda: GAE(gamma=0.0),
        lambda: GAE(lam=1.5),
        lambda: KLInReward(0.0),
        lambda: KLInReward(0.1, "k4"),
    ):
        with pytest.raises(SettingError):
            make()
    with pytest.raises(SettingError, match="bootstrap_S"):
        GAE(bootstrap_truncated=True)(packed(step_of([1.0], [0])))
    assert GAE(bootstrap_truncated=True).needs == {"values_T", "bootstrap_S"}
