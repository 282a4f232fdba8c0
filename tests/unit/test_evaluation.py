"""pass@k, maj@k and intervals against hand-made numbers and exhaustive enumeration."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from trimtab.errors import SettingError
from trimtab.evaluation.estimators import Paired, bootstrap, majority_at_k, paired, pass_at_k, wilson
from trimtab.evaluation.evaluator import Evaluation, PromptResult


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        *((4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 1, 4, 1.0), (16, 4, 1, 0.25), (16, 4, 2, 0.45)),
        *((16, 4, 4, 0.728), (16, 4, 8, 0.9615), (16, 4, 16, 1.0), (8, 0, 8, 0.0), (8, 8, 1, 1.0)),
    ],
)
def test_pass_at_k_equals_the_published_numbers(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-4)


def test_pass_at_k_equals_enumeration_of_all_subsets() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations(range(n), k))
                share = sum(any(i < c for i in subset) for subset in subsets) / len(subsets)
                assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_refuses_more_draws_than_answers() -> None:
    with pytest.raises(SettingError, match="at least 5 graded answers"):
        pass_at_k(4, 1, 5)


def test_majority_counts_votes_and_shares_ties() -> None:
    rng = np.random.default_rng(0)
    assert majority_at_k(["7", "7", "3"], [True, True, False], 3, rng) == 1.0
    assert majority_at_k(["7", "3", "3"], [True, False, False], 3, rng) == 0.0
    assert majority_at_k(["7", "3"], [True, False], 2, rng) == 0.5
    assert majority_at_k([None, None, "7"], [False, False, True], 3, rng) == 1.0
    assert majority_at_k([None, None], [False, False], 2, rng) == 0.0


def test_majority_of_one_is_the_share_of_right_answers() -> None:
    value = majority_at_k(["7", "3", "3", "7"], [True, False, False, True], 1, np.random.default_rng(0))
    assert 0.3 < value < 0.7


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for trial in range(200):
        estimate = bootstrap(rng.binomial(8, 0.4, size=100) / 8, seed=trial)
        inside += estimate.low <= 0.4 <= estimate.high
    assert 0.88 <= inside / 200 <= 0.99


def test_certain_outcomes_keep_an_interval() -> None:
    estimate = bootstrap(np.ones(20))
    assert estimate.value == 1.0
    assert estimate.low == pytest.approx(wilson(1.0, 20)[0])
    assert estimate.low < 0.9


def test_pairing_narrows_the_interval_and_names_the_verdict() -> None:
    rng = np.random.default_rng(2)
    hard_P = rng.uniform(size=200)
    start_P, final_P = hard_P * 0.8, hard_P * 0.8 + 0.05
    difference = paired(final_P, start_P)
    assert difference.verdict == "better"
    assert difference.high - difference.low < 1e-9 < bootstrap(final_P).high - bootstrap(final_P).low
    assert Paired(0.0, -0.1, 0.1).verdict == "not distinguishable"
    assert Paired(-0.2, -0.3, -0.1).verdict == "worse"


def test_only_what_was_sampled_alike_is_compared() -> None:
    result = PromptResult("p", 2, 2, 1, 0.5, 3.0, 0, (None, None), (True, False))
    cold, warm = (
        Evaluation(version=0, temperature=t, max_new_tokens=9, samples=2, seconds=1.0, results=(result,))
        for t in (0.5, 1.0)
    )
    assert cold.against(cold) == Paired(0.0, 0.0, 0.0)
    assert cold.against(warm) is None
    assert "against_start" in cold.summary([1], cold)
    assert "against_start" not in cold.summary([1], warm)
    assert "against_start" not in cold.summary([1])


def test_an_evaluation_without_graded_prompts_is_an_error() -> None:
    with pytest.raises(SettingError, match="without a single graded prompt"):
        bootstrap(np.array([]))
