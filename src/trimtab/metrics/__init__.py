"""Mergeable metrics: values that join over micro-batches, updates and ranks without a mean of means.

Metrics = dict from a key of the catalogue to one of
Mean, Sum, Max, Min, Std, Correlation, Difference, EffectiveShare, ExplainedVariance,
Quantile, Histogram
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trimtab.metrics.histogram import Bins, Bracket, Histogram, Quantile
from trimtab.metrics.relations import Correlation, Difference, EffectiveShare, ExplainedVariance
from trimtab.metrics.values import Max, Mean, Metric, Min, Std, Sum

__all__ = [
    "Bins",
    "Bracket",
    "Correlation",
    "Difference",
    "EffectiveShare",
    "ExplainedVariance",
    "Histogram",
    "Max",
    "Mean",
    "Metric",
    "Metrics",
    "Min",
    "Quantile",
    "Readings",
    "Std",
    "Sum",
    "histograms",
    "merge",
    "read",
]

Metrics = dict[str, Metric]


class Readings(NamedTuple):
    """What a set of metrics says: numbers, and the reason for each number that is not finite."""

    values: dict[str, float]
    missing: dict[str, str]


def merge(parts: Iterable[Mapping[str, Metric]]) -> Metrics:
    """The metrics of all parts together; a key may be in some of them only.

    Raises ValueError when two parts hold different kinds of metric under one key.
    """
    joined: Metrics = {}
    for part in parts:
        for key, metric in part.items():
            earlier = joined.get(key)
            if earlier is None:
                joined[key] = metric
            elif type(earlier) is type(metric):
                joined[key] = earlier + metric
            else:
                raise ValueError(f"{key}: {type(earlier).__name__} and {type(metric).__name__} do not merge")
    return joined


def read(metrics: Mapping[str, Metric]) -> Readings:
    """The values of all metrics. A metric that observed nothing is left out, never 0."""
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for key, metric in metrics.items():
        value = metric.value
        if metric.nonfinite:
            missing[key] = f"{metric.nonfinite} values were NaN or infinite"
        elif value is not None and math.isfinite(value):
            values[key] = float(value) + 0.0  # -0.0 and 0.0 are one number in the record
        elif value is not None:
            missing[key] = "too large for a 64-bit float"
    return Readings(values, missing)


def histograms(metrics: Mapping[str, Metric]) -> dict[str, Histogram]:
    """The metrics that are whole distributions, without those that observed nothing."""
    found = {key: metric for key, metric in metrics.items() if isinstance(metric, Histogram)}
    return {key: histogram for key, histogram in found.items() if histogram.count or histogram.nonfinite}
