"""Robust statistics: trends by ranks, medians at both ends, and no single step that decides."""
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from tests.doctor_cases import history_of, ramp
from trimtab.doctor.statistics import correlation, course_of, mad, running_median, trend


def course(values):
    return course_of(history_of({"k": values}, len(values)).series("k"))


def test_a_line_has_its_slope_and_a_sure_trend():
    slope, tau, p = trend(np.arange(10.0), 3.0 * np.arange(10.0))
    assert (slope, tau) == (3.0, 1.0)
    assert p < 1e-3


def test_mann_kendall_against_a_case_worked_by_hand():
    # pairs: 8 up, 2 down of 10; S = 6, Var = 5 * 4 * 15 / 18; z = 5 / sqrt(16.67) = 1.2247
    slope, tau, p = trend(np.arange(5.0), np.array([1.0, 3.0, 2.0, 5.0, 4.0]))
    assert tau == pytest.approx(0.6)
    assert p == pytest.approx(0.2207, abs=1e-3)
    assert slope == pytest.approx(0.875)  # of the ten slopes 3/4 and 1 are the middle two


def test_ties_are_no_trend():
    assert trend(np.arange(6.0), np.ones(6)) == (0.0, 0.0, 1.0)


def test_three_values_have_no_trend():
    assert trend(np.arange(3.0), np.array([0.0, 5.0, 10.0]))[2] == 1.0


def test_one_wild_step_moves_neither_end_nor_the_trend():
    values = [1.0] * 20
    values[-1] = 1000.0
    found = course(values)
    assert (found.start, found.now, found.slope) == (1.0, 1.0, 0.0)
    assert not found.rises


def test_a_course_knows_its_start_its_peak_and_its_steps():
    found = course(ramp(0, 1, 10) + ramp(1, 0, 10))
    assert found.peak > 0.9
    assert found.now < 0.3
    assert found.start_steps == (0, 3)
    assert found.now_steps == (16, 19)


def test_noise_alone_is_no_trend():
    values = np.random.default_rng(0).normal(size=200)
    found = course(values.tolist())
    assert not found.rises
    assert not found.falls
    assert found.spread == pytest.approx(1.0, abs=0.25)


def test_no_values_no_course():
    assert course_of(history_of({}, 3).series("k")) is None


def test_small_pieces():
    assert mad(np.array([1.0, 1.0, 100.0])) == 0.0
    assert running_median(np.array([1.0, 9.0, 2.0, 3.0]), 3).tolist() == [2.0, 3.0]
    assert correlation(np.arange(4.0), -np.arange(4.0)) == pytest.approx(-1.0)
    assert correlation(np.arange(4.0), np.ones(4)) is None
