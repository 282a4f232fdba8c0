"""What the trust region does to an update: ratios, gates, and the gradient it removes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.metrics import Bins, Histogram, Max, Mean, Metrics, Min, Quantile, Std, Sum
from trimtab.probes.tokens import Column, TrainedTokens

RATIO_BINS = Bins("ratio", 1e-6, 10.0, 140)
GATE_BINS = Bins("linear", -0.005, 1.005, 101)
"""Centred on 0, 0.01 ... 1, so that the quantiles of a hard clip are 0 and 1."""


def ratio_metrics(tokens: TrainedTokens) -> Metrics:
    """``ratio/token*`` and ``ratio/sequence*`` from unclamped log-ratios, and the clamped tokens."""
    metrics: Metrics = {}
    if tokens.clamped_N is not None:
        metrics["ratio/clamped"] = Sum.of(tokens.clamped_N)
    if tokens.log_ratio_N is None:
        return metrics
    with np.errstate(over="ignore"):  # an infinite ratio is counted and named by the metric
        token_N = np.exp(tokens.log_ratio_N)
        sequence_S = np.exp(tokens.sequence_means(tokens.log_ratio_N))
    return metrics | _spread("ratio/token", token_N) | _spread("ratio/sequence", sequence_S)


def gate_metrics(tokens: TrainedTokens) -> Metrics:
    """``gate/*`` by the sign of the advantage; ``gate/mass`` only where the batch has its weights."""
    if tokens.gate_N is None or tokens.advantage_N is None:
        return {}
    metrics: Metrics = {}
    for sign, chosen_N in (("positive", tokens.advantage_N > 0), ("negative", tokens.advantage_N < 0)):
        gates = tokens.gate_N[chosen_N]
        histogram = Histogram.of(gates, GATE_BINS)
        metrics[f"gate/{sign}"] = histogram
        metrics[f"gate/{sign}_p5"] = Quantile(histogram, 0.05)
        metrics[f"gate/{sign}_p50"] = Quantile(histogram, 0.5)
        metrics[f"gate/{sign}_below_half"] = Mean.of(gates < 0.5)
    sizes_N = np.abs(tokens.gate_N)
    metrics["gate/effective_mass"] = Mean.of(sizes_N, weights=np.abs(tokens.advantage_N))
    if tokens.weight_N is not None:
        pull_N = np.abs(tokens.weight_N * tokens.advantage_N)
        metrics["gate/mass"] = Mean.of(sizes_N, weights=pull_N)
    return metrics


def clip_metrics(tokens: TrainedTokens) -> Metrics:
    """``clip/*``: the share of tokens with A != 0 whose gate is exactly 0, by sign and side."""
    if tokens.gate_N is None or tokens.ratio_N is None or tokens.advantage_N is None:
        return {}
    signal_N = tokens.advantage_N != 0
    cut_N = tokens.gate_N == 0.0
    sides = {"high": cut_N & (tokens.ratio_N > 1.0), "low": cut_N & (tokens.ratio_N < 1.0)}
    metrics: Metrics = {"clip/removed": Mean.of(cut_N[signal_N])}
    for side, removed_N in sides.items():
        metrics[f"clip/{side}"] = Mean.of(removed_N[signal_N])
        metrics[f"clip/positive_{side}"] = Mean.of(removed_N[tokens.advantage_N > 0])
        metrics[f"clip/negative_{side}"] = Mean.of(removed_N[tokens.advantage_N < 0])
    pulled_S = np.bincount(tokens.seq_N, weights=signal_N, minlength=tokens.num_sequences)
    open_S = np.bincount(tokens.seq_N, weights=signal_N & ~cut_N, minlength=tokens.num_sequences)
    metrics["clip/sequences"] = Mean.of(open_S[pulled_S > 0] == 0)
    return metrics


def _spread(key: str, ratios: Column) -> Metrics:
    histogram = Histogram.of(ratios, RATIO_BINS)
    return {
        key: histogram,
        f"{key}_std": Std.of(ratios),
        f"{key}_min": Min.of(ratios),
        f"{key}_max": Max.of(ratios),
        f"{key}_p1": Quantile(histogram, 0.01),
        f"{key}_p99": Quantile(histogram, 0.99),
    }
