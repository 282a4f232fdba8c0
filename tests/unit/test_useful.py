"""Share of useful groups at other group sizes: the counted estimate and the beta-binomial one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from trimtab.errors import SettingError
from trimtab.evaluation.useful import useful_at, useful_share


@pytest.mark.parametrize(
    ("n", "c", "size"), [(6, 2, 3), (8, 0, 4), (8, 8, 4), (5, 3, 5), (4, 1, 2), (7, 3, 1)]
)
def test_counted_share_is_the_share_of_all_subsets_that_are_mixed(n: int, c: int, size: int):
    answers = [1] * c + [0] * (n - c)
    subsets = list(combinations(answers, size))
    mixed = sum(0 < sum(subset) < size for subset in subsets) / len(subsets)
    assert useful_at(n, c, size) == pytest.approx(mixed, abs=1e-12)


def test_a_size_up_to_the_answers_is_counted_and_beyond_is_modelled():
    found = useful_share([4, 2], [8, 8], [4, 8, 16])
    assert [share.method for share in found] == ["counted", "counted", "beta-binomial"]
    assert found[1].value == 1.0


def test_beta_binomial_finds_the_truth_of_a_known_population():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 1.5, size=600)
    right = rng.binomial(8, rates).tolist()
    share = useful_share(right, [8] * 600, [32])[0]
    truth = float(np.mean(1.0 - rates**32 - (1.0 - rates) ** 32))
    assert share.low <= truth <= share.high
    assert abs(share.value - truth) < 0.05


def test_nothing_right_leaves_room_for_doubt_that_more_prompts_narrow():
    few, many = (useful_share([0] * n, [8] * n, [32])[0] for n in (4, 400))
    assert few.high > many.high > 0.0
    assert many.value < 0.1


def test_larger_groups_are_never_less_useful():
    shares = useful_share([1, 5, 0, 8, 3], [8] * 5, [16, 32, 64])
    assert shares[0].value < shares[1].value < shares[2].value


@pytest.mark.parametrize(("right", "graded"), [([], []), ([3], [2]), ([1], [2, 2]), ([0], [0]), ([1], [])])
def test_impossible_counts_are_refused(right: list[int], graded: list[int]):
    with pytest.raises(SettingError):
        useful_share(right, graded, [4])


def test_a_size_beyond_the_answers_cannot_be_counted():
    with pytest.raises(SettingError, match="at least 9"):
        useful_at(8, 3, 9)


def test_the_count_is_unbiased_for_any_pass_rate():
    for p in (0.1, 0.5, 0.93):
        chances = [comb(8, c) * p**c * (1 - p) ** (8 - c) for c in range(9)]
        for size in (2, 4, 8):
            expected = sum(chance * useful_at(8, c, size) for c, chance in enumerate(chances))
            assert expected == pytest.approx(1 - p**size - (1 - p) ** size)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("lumps", [0.0, 0.5])
def test_the_model_covers_what_a_larger_group_would_have_shown(seed: int, lumps: float):
    rng = np.random.default_rng(seed)
    rates = np.where(rng.random(400) < lumps, 0.0, rng.beta(1.0, 1.5, size=400))
    shares = useful_share(rng.binomial(8, rates).tolist(), [8] * 400, [4, 16, 32])
    assert [share.method for share in shares] == ["counted", "beta-binomial", "beta-binomial"]
    for share in shares:
        size = share.size
        truth = float(np.mean(1 - rates**size - (1 - rates) ** size))
        assert share.low <= share.value <= share.high
        assert share.low - 0.02 <= truth <= share.high + 0.02
        assert share.answers_each == pytest.approx(size / share.value)


def test_a_size_that_few_prompts_reach_is_modelled():
    found = useful_share([2, 2, 1], [8, 4, 4], [8])
    assert found[0].method == "beta-binomial"
    found = useful_share([2] * 19 + [1], [8] * 19 + [4], [8])
    assert (found[0].method, found[0].prompts) == ("counted", 19)
