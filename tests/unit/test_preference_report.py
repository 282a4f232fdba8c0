"""The report on a reward model's preferences, on rewards made by hand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.evaluation.preference import chosen_longer, preference_report


def report_of(differences, lengths=None, prompts=None, scale=1.0):
    rewards = np.array([[d + 3.0, 3.0] for d in differences])
    count = len(differences)
    return preference_report(
        rewards, lengths or [(1, 1)] * count, prompts or [str(i) for i in range(count)], scale
    )


def test_accuracy_log_loss_and_brier_by_hand():
    report = report_of([math.log(3), -math.log(3), 0.0, math.log(9)])  # p = 3/4, 1/4, 1/2, 9/10
    assert report.accuracy == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert report.log_loss == pytest.approx(-sum(map(math.log, (0.75, 0.25, 0.5, 0.9))) / 4)
    assert report.brier == pytest.approx((0.25**2 + 0.75**2 + 0.5**2 + 0.1**2) / 4)
    assert [(b.pairs, b.accuracy) for b in report.reliability] == [(1, 0.5), (2, 0.5), (1, 1.0)]
    assert report.ece == pytest.approx(0.25 * 0.0 + 0.5 * 0.25 + 0.25 * 0.1)


def test_a_calibrated_model_has_no_error_and_a_boastful_one_has():
    rng = np.random.default_rng(0)
    chances = rng.uniform(0.05, 0.95, 20_000)
    signs = np.where(rng.random(20_000) < chances, 1.0, -1.0)
    differences = list(signs * np.log(chances / (1 - chances)))
    assert report_of(differences).ece < 0.01
    assert report_of(differences, scale=0.25).ece > 0.1
    sure = report_of([900.0, -900.0])
    assert (sure.accuracy, sure.ece, sure.brier) == (0.5, 0.5, 0.5)
    assert sure.log_loss == pytest.approx(450.0)


def test_pairs_of_one_prompt_widen_the_interval():
    differences = [1.0] * 80 + [-1.0] * 20
    alone = report_of(differences)
    shared = report_of(differences, prompts=[str(i // 10) for i in range(100)])
    assert (alone.prompts, shared.prompts) == (100, 10)
    assert alone.interval == pytest.approx((0.711, 0.867), abs=1e-3)
    assert shared.interval[0] < 0.61
    assert report_of([1.0] * 10).interval[0] < 0.75, "ten of ten is no certainty"


def test_the_lure_of_length():
    lengths = [(9, 1), (9, 1), (9, 1), (1, 9), (5, 5)]
    found = report_of([1.0, 1.0, 1.0, -1.0, 1.0], lengths).lengths
    assert found.pairs == 4
    assert (found.chosen_longer, found.model_longer, found.rule) == (0.75, 1.0, 0.75)
    assert (found.accuracy_long, found.accuracy_short) == (1.0, 0.0)
    assert chosen_longer(lengths) == 0.75
    same = report_of([1.0]).lengths
    assert (same.pairs, same.chosen_longer, same.rule) == (0, None, None)
    assert chosen_longer([(1, 1)]) is None


def test_no_pair_no_report():
    with pytest.raises(ValueError, match="at least one pair"):
        preference_report(np.empty((0, 2)), [], [])
