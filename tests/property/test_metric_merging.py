"""However values are split and in whatever order the parts are joined, a metric says the same."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    merge,
    read,
)

BINS = [
    Bins("linear", -5.0, 5.0, 20),
    Bins("log", 1e-3, 10.0, 16),
    Bins("ratio", 1e-3, 3.0, 12),
    Bins("linear", -0.5, 7.5, 8),
]

numbers = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 6))
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=60)


def measure(x: np.ndarray, y: np.ndarray):
    return {
        "mean": Mean.of(x),
        "weighted": Mean.of(x, weights=np.abs(y)),
        "sum": Sum.of(x),
        "max": Max.of(x),
        "min": Min.of(x),
        "std": Std.of(x),
        "correlation": Correlation.of(x, y),
        "difference": Difference(Mean.of(x), Mean.of(y)),
        "share": EffectiveShare.of(np.abs(x)),
        "explained": ExplainedVariance.of(x, y),
        **{f"histogram{i}": Histogram.of(x, bins) for i, bins in enumerate(BINS)},
        **{f"median{i}": Quantile(Histogram.of(x, bins), 0.5) for i, bins in enumerate(BINS)},
    }


@settings(max_examples=150, deadline=None)
@given(pairs, st.lists(st.integers(0, 60), max_size=6), st.randoms(use_true_random=False))
def test_any_split_in_any_order_equals_the_whole(values, cuts, random):
    x, y = np.array(values, dtype=np.float64).T
    whole = measure(x, y)
    bounds = [0, *sorted(min(cut, len(x)) for cut in cuts), len(x)]
    parts = [measure(x[a:b], y[a:b]) for a, b in pairwise(bounds)]
    random.shuffle(parts)
    while len(parts) > 1:  # join random neighbours: any tree
        i = random.randrange(len(parts) - 1)
        parts[i : i + 2] = [merge(parts[i : i + 2])]
    joined = parts[0]
    assert joined.keys() == whole.keys()
    scale = float(np.abs(x).sum() + np.abs(y).sum()) + 1.0
    for key, metric in whole.items():
        if key in ("max", "min") or key.startswith("median"):
            assert joined[key].value == metric.value, key
        elif isinstance(metric, Histogram):
            same(joined[key], metric)
        else:
            close(key, joined[key].value, metric.value, scale)


def same(joined: Histogram, whole: Histogram) -> None:
    assert joined.counts.tolist() == whole.counts.tolist()
    assert (joined.below, joined.above, joined.smallest, joined.largest) == (
        whole.below,
        whole.above,
        whole.smallest,
        whole.largest,
    )
    assert joined.total == pytest.approx(whole.total, abs=1e-9)


def close(key: str, joined: float | None, whole: float | None, scale: float) -> None:
    """Values of constant columns may differ by rounding between None and a number without meaning."""
    if joined is None or whole is None:
        assert joined is whole is None or key in ("correlation", "explained"), key
    elif key in ("correlation", "explained"):
        assert joined == pytest.approx(whole, rel=1e-5, abs=1e-5) or abs(whole) > 1e6
    else:
        assert joined == pytest.approx(whole, rel=1e-9, abs=1e-12 * scale), key


@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=80), st.floats(0, 1), st.sampled_from(BINS))
def test_the_bracket_holds_the_true_quantile_and_the_stated_error_holds(values, q, bins):
    histogram = Histogram.of(values, bins)
    true = sorted(values)[max(1, math.ceil(q * len(values) - 1e-9)) - 1]
    bracket, found = histogram.bracket(q), histogram.quantile(q)
    assert bracket is not None
    assert found is not None
    assert bracket.low <= true <= bracket.high
    assert bracket.low <= found <= bracket.high
    if bins.edges[0] <= true <= bins.edges[-1]:
        place = min(int(np.searchsorted(bins.edges, true, side="right")) - 1, bins.size - 1)
        low, high = bins.edges[place], bins.edges[place + 1]
        if bins.scale == "linear":
            assert abs(found - true) <= 0.5 * (high - low) * (1 + 1e-9)
        else:
            assert abs(math.log(found / true)) <= 0.5 * math.log(high / low) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(), max_size=40), st.sampled_from(BINS))
def test_a_histogram_survives_json_exactly_whatever_it_saw(values, bins):
    histogram = Histogram.of(values, bins)
    text = json.dumps(histogram.to_json(), allow_nan=False)
    again = Histogram.from_json(json.loads(text))
    assert again == histogram
    assert again.to_json() == histogram.to_json()
    assert again.count + again.nonfinite == len(values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_what_is_read_is_always_finite(values):
    x = np.array(values)
    found = read(measure(x, x[::-1].copy()))
    assert all(math.isfinite(value) for value in found.values.values())
    assert not found.values.keys() & found.missing.keys()
