"""The first-step checks pass what is sound, fail what is not, and say why."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from trimtab.errors import RunError
from trimtab.rollout.checks import check_alone, check_ratio, check_weights_arrived, check_weights_changed
from trimtab.types import Finish, Rollout, VersionSpan

LOGPROBS = np.log(np.linspace(0.02, 0.98, 200))


def rollout(ids: list[int], shift: float = 0.0, seed: int = 5) -> Rollout:
    return Rollout(
        prompt_id="p",
        draw=0,
        index=0,
        token_ids=np.array(ids),
        logprobs=np.full(len(ids), -1.0 + shift, dtype=np.float32),
        mask=np.ones(len(ids), dtype=bool),
        finish=Finish.STOP,
        versions=(VersionSpan(0, 0, len(ids)),),
        seed=seed,
        text="",
    )


@pytest.mark.parametrize("check", [check_ratio, check_weights_arrived])
@pytest.mark.parametrize(("shift", "passed"), [(0.0, True), (5e-5, True), (2e-4, False), (200.0, False)])
def test_float32_ratio(check, shift, passed):
    result = check(LOGPROBS - shift, torch.tensor(LOGPROBS), dtype=torch.float32)
    assert result.passed is passed
    assert (result.value <= result.limit) is passed
    assert "200 tokens" in result.sentence
    assert ("likely causes" in result.sentence) is not passed


@pytest.mark.parametrize(
    ("shift", "passed", "words"),
    [(0.004, True, "is 2"), (0.014, True, "watch the mismatch"), (0.05, False, "likely causes")],
)
def test_bfloat16_band(shift, passed, words):
    """Mean probability 0.5, so a log-probability shift of s moves it by about s / 2."""
    result = check_ratio(LOGPROBS + shift, LOGPROBS, dtype=torch.bfloat16)
    assert result.passed is passed
    assert words in result.sentence
    assert ("watch" in result.sentence) == (passed and result.value > 0.005)


def test_not_a_number_never_passes():
    broken = LOGPROBS.copy()
    broken[3] = np.nan
    for dtype in (torch.float32, torch.bfloat16):
        assert not check_ratio(LOGPROBS, broken, dtype=dtype).passed


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="no token"):
        check_ratio([], [], dtype=torch.float32)
    with pytest.raises(ValueError, match="shapes"):
        check_ratio(LOGPROBS, LOGPROBS[1:], dtype=torch.float32)


def test_suspects_differ_by_check():
    assert "dropout" in check_ratio(LOGPROBS, LOGPROBS - 1, dtype=torch.float32).sentence
    assert "older weights" in check_weights_arrived(LOGPROBS, LOGPROBS - 1, dtype=torch.float32).sentence


@pytest.mark.parametrize(
    ("after", "passed", "words"), [("b", True, "was a and is b"), ("a", False, "as before")]
)
def test_weights_that_an_update_has_changed(after, passed, words):
    result = check_weights_changed("a", after)
    assert (result.value, result.passed) == (not passed, passed)
    assert words in result.sentence


def test_alone_and_together():
    sound = check_alone([(rollout([1, 2, 3]), rollout([1, 2, 3], shift=5e-6))], dtype=torch.float32)
    assert sound.passed
    assert sound.require() is sound
    for other, words in ((rollout([1, 2, 3], shift=1e-3), "1.0e-03"), (rollout([1, 9, 3]), "from token 1")):
        result = check_alone([(rollout([1, 2, 3]), other)], dtype=torch.float32)
        assert not result.passed
        assert words in result.sentence
        with pytest.raises(RunError, match="padding"):
            result.require()
    assert not check_alone([(rollout([1, 2]), rollout([1, 2, 3]))], dtype=torch.float32).passed


def test_rounding_may_lead_one_of_four_rollouts_elsewhere_but_not_two():
    same, parted = (rollout([1, 2, 3]), rollout([1, 2, 3])), (rollout([1, 2, 3]), rollout([1, 9]))
    assert check_alone([same, same, same, parted], dtype=torch.float32).passed
    assert not check_alone([same, same, parted, parted], dtype=torch.float32).passed


def test_alone_and_together_in_bfloat16_compares_what_is_shared():
    near, far = rollout([1, 2, 9], shift=1e-3), rollout([1, 2, 9], shift=0.5)
    assert check_alone([(rollout([1, 2, 3]), near)], dtype=torch.bfloat16).passed
    assert not check_alone([(rollout([1, 2, 3]), far)], dtype=torch.bfloat16).passed


def test_rollouts_that_share_no_token_do_not_pass_in_any_type():
    pairs = [(rollout([1, 2]), rollout([7, 2]))] * 4
    for dtype in (torch.float32, torch.bfloat16):
        result = check_alone(pairs, dtype=dtype)
        assert not result.passed
        assert "4 of 4 rollouts differ" in result.sentence


def test_other_seeds_cannot_be_compared():
    with pytest.raises(ValueError, match="different seeds"):
        check_alone([(rollout([1]), rollout([1], seed=6))], dtype=torch.float32)


def test_results_are_frozen():
    result = check_ratio(LOGPROBS, LOGPROBS, dtype=torch.float32)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.passed = False  # type: ignore[misc]  # that it cannot be set is the test
