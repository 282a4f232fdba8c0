"""Mergeable metrics: exact numbers, nothing observed, and nothing hidden."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.metrics import (
    Bins,
    Correlation,
    Difference,
    EffectiveShare,
    ExplainedVariance,
    Histogram,
    Max,
    Mean,
    Min,
    Quantile,
    Std,
    Sum,
    histograms,
    merge,
    read,
)

UNIT = Bins("linear", 0.0, 1.0, 4)


def test_a_mean_of_means_would_be_wrong_and_is_not_made():
    short, long = Mean.of([1.0] * 10), Mean.of([-1.0] * 1000)
    assert (short + long).value == pytest.approx(-990 / 1010)


def test_weights_of_zero_silence_whatever_stands_there():
    assert Mean.of([1.0, np.nan, 3.0], weights=[1, 0, 3]).value == 2.5


@pytest.mark.parametrize(
    "nothing",
    [
        Mean.of([]),
        Mean(0.0, 0.0),
        Max.of([]),
        Min.of([]),
        Std.of([]),
        Std.of([3.0]),
        Correlation.of([], []),
        Correlation.of([1.0], [2.0]),
        Difference(Mean.of([1.0]), Mean()),
        EffectiveShare.of([]),
        ExplainedVariance.of([], []),
        Histogram.of([], UNIT),
        Quantile(Histogram.of([], UNIT), 0.5),
    ],
)
def test_nothing_observed_is_none_and_leaves_no_number(nothing):
    assert nothing.value is None
    assert read({"key": nothing}) == ({}, {})


def test_the_sum_of_no_event_is_zero():
    assert Sum.of([]).value == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "make",
    [
        Mean.of,
        Sum.of,
        Max.of,
        Min.of,
        Std.of,
        EffectiveShare.of,
        lambda x: Correlation.of(x, [1.0, 2.0, 4.0]),
        lambda x: Correlation.of([1.0, 2.0, 4.0], x),
        lambda x: ExplainedVariance.of([1.0, 2.0, 4.0], x),
        lambda x: Difference(Mean.of(x), Mean.of([1.0])),
        lambda x: Histogram.of(x, UNIT),
        lambda x: Quantile(Histogram.of(x, UNIT), 0.5),
    ],
)
def test_what_is_not_finite_is_counted_and_named_also_after_merging(make, bad):
    good, spoilt = make([0.25, 0.5, 0.75]), make([0.25, bad, 0.75])
    assert good.nonfinite == 0
    for metric in (spoilt, spoilt + good, good + spoilt):
        assert metric.nonfinite == 1
        assert metric.value is None
        assert read({"key": metric}) == ({}, {"key": "1 values were NaN or infinite"})


def test_a_sum_that_overflows_is_named_too():
    values, missing = read({"big": Sum.of([1e308, 1e308])})
    assert values == {}
    assert missing == {"big": "too large for a 64-bit float"}


def test_std_of_equal_values_is_exactly_zero():
    for value in (0.1, 0.35, 0.6, 0.95, 1 / 3):
        assert Std.of([value] * 64).value == 0.0
        assert (Std.of([value] * 7) + Std.of([value] * 57)).value == 0.0


def test_std_is_the_population_one():
    assert Std.of([1.0, 0.0, 0.0, 0.0]).value == pytest.approx(math.sqrt(3) / 4)


def test_correlation_of_known_pairs():
    assert Correlation.of([1, 2, 3], [2, 4, 6]).value == pytest.approx(1.0)
    assert Correlation.of([1, 2, 3], [3, 2, 1]).value == pytest.approx(-1.0)
    assert Correlation.of([1, 0, 0, 1], [1, 1, 0, 0]).value == 0.0
    assert Correlation.of([0.7] * 5, [1, 2, 3, 4, 5]).value is None


def test_effective_share():
    assert EffectiveShare.of([2.0, 2.0, 2.0]).value == pytest.approx(1.0)
    assert EffectiveShare.of([1.0, 0.0, 0.0, 0.0]).value == pytest.approx(0.25)


def test_explained_variance():
    target = [1.0, 2.0, 3.0]
    assert ExplainedVariance.of(target, target).value == 1.0
    assert ExplainedVariance.of([2.0, 2.0, 2.0], target).value == pytest.approx(0.0)
    assert ExplainedVariance.of([3.0, 2.0, 1.0], target).value == pytest.approx(-3.0)
    assert ExplainedVariance.of([1.0, 2.0], [5.0, 5.0]).value is None


def test_bins_hold_their_lower_edge_and_the_last_one_both():
    histogram = Histogram.of([-0.1, 0.0, 0.25, 0.2499, 0.75, 1.0, 1.01], UNIT)
    assert histogram.counts.tolist() == [2, 1, 0, 2]
    assert (histogram.below, histogram.above, histogram.count) == (1, 1, 7)
    assert (histogram.smallest, histogram.largest) == (-0.1, 1.01)
    assert histogram.value == pytest.approx((-0.1 + 0.25 + 0.2499 + 0.75 + 1.0 + 1.01) / 7)


def test_ratio_bins_are_symmetric_about_one_and_fine_near_it():
    bins = Bins("ratio", 1e-6, 10.0, 140)
    assert bins.size == 281
    assert len(bins.edges) == 282
    np.testing.assert_allclose(bins.edges * bins.edges[::-1], 1.0, rtol=1e-12)
    histogram = Histogram.of([1.0] * 98 + [1.0004, 0.9997], bins)
    assert histogram.counts[140] == 98
    for q, true in ((0.01, 0.9997), (1.0, 1.0004)):
        found = histogram.quantile(q)
        assert found is not None
        assert abs(math.log(found)) == pytest.approx(abs(math.log(true)), rel=0.06)
    assert histogram.quantile(0.5) == pytest.approx(1.0, abs=1e-12)


def test_log_bins():
    assert Bins("log", 1.0, 100.0, 2).edges == pytest.approx([1.0, 10.0, 100.0])


@pytest.mark.parametrize(
    "make",
    [lambda: Bins("linear", 1.0, 1.0, 4), lambda: Bins("log", 0.0, 1.0, 4), lambda: Bins("linear", 0, 1, 0)],
)
def test_impossible_bins_are_refused(make):
    with pytest.raises(ValueError, match="no histogram can have these bins"):
        make()


def test_quantiles_outside_the_edges_use_the_exact_extremes():
    histogram = Histogram.of([-5.0, -4.0, 7.0], UNIT)
    assert histogram.bracket(0.0) == (-5.0, 0.0)
    assert histogram.bracket(1.0) == (1.0, 7.0)


def test_histograms_merge_only_over_the_same_bins():
    with pytest.raises(ValueError, match="same bins"):
        Histogram.of([0.5], UNIT) + Histogram.of([0.5], Bins("linear", 0.0, 1.0, 5))


def test_merge_takes_the_union_and_refuses_two_kinds():
    joined = merge([{"a": Sum(1.0)}, {"a": Sum(2.0), "b": Max(3.0)}])
    assert read(joined).values == {"a": 3.0, "b": 3.0}
    with pytest.raises(ValueError, match="Sum and Max do not merge"):
        merge([{"a": Sum(1.0)}, {"a": Max(1.0)}])


def test_empty_histograms_are_no_distributions():
    full = Histogram.of([0.5], UNIT)
    assert histograms({"a": full, "b": Histogram.of([], UNIT), "c": Sum(1.0)}) == {"a": full}


def test_minus_zero_reads_as_zero():
    assert math.copysign(1.0, read({"a": Sum(-0.0)}).values["a"]) == 1.0
