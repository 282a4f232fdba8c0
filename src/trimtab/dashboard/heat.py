"""A distribution over time as a heat map: merged histograms, a column for one step or several."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np

from trimtab.metrics import Bins, Histogram
from trimtab.record.reader import RunReader

MOST_COLUMNS, MOST_ROWS = 240, 64
MOST_MERGED = 8
"""Steps joined in one column; of more, this many evenly chosen ones."""

QUANTILES = (0.05, 0.5, 0.95)


def heat(reader: RunReader, key: str, columns: int) -> dict[str, Any]:
    """The histograms of ``key``: ``columns`` of [first step, last step], ``edges``, ``counts`` [column][row].

    Counts are shares of the column. Rows are neighbouring bins joined, cut to the bins that any step has
    filled; what lies below or above the bins is in ``outside`` [column][2]. ``quantiles`` has 5, 50 and 95%.
    """
    steps = reader.distribution_steps()
    parts = min(len(steps), max(1, min(columns, MOST_COLUMNS)))
    chosen = np.array_split(steps, parts) if steps else []
    merged: list[tuple[int, int, Histogram]] = []
    for part in chosen:
        few = part[np.linspace(0, len(part) - 1, min(len(part), MOST_MERGED)).astype(int)]
        found = [h for step in few.tolist() if (h := reader.distributions(step).get(key)) is not None]
        if found:
            merged.append((int(part[0]), int(part[-1]), _merge(found)))
    if not merged:
        return {"columns": [], "edges": [], "counts": [], "outside": [], "quantiles": []}
    bins = merged[-1][2].bins
    merged = [entry for entry in merged if entry[2].bins == bins]
    counts = np.stack([histogram.counts for _, _, histogram in merged]).astype(np.float64)
    starts = _gate_rows(bins) if key.startswith("gate/") else _rows(counts)
    rows = np.add.reduceat(counts, starts[:-1], axis=1)
    totals = np.maximum(1, [histogram.count for _, _, histogram in merged])
    return {
        "columns": [[begin, end] for begin, end, _ in merged],
        "scale": bins.scale,
        "edges": [float(f"{edge:.9g}") for edge in bins.edges[starts]],
        "counts": [[float(f"{x:.4g}") for x in row] for row in (rows / totals[:, None]).tolist()],
        "outside": [[h.below / t, h.above / t] for (_, _, h), t in zip(merged, totals.tolist(), strict=True)],
        "quantiles": [[h.quantile(q) for q in QUANTILES] for _, _, h in merged],
    }


def _rows(counts: np.ndarray) -> np.ndarray:
    """First bin of each row, and the end: the bins that anything has filled, joined to ``MOST_ROWS``."""
    filled = np.flatnonzero(counts.sum(axis=0))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, counts.shape[1])
    return np.unique(np.linspace(first, last, min(last - first, MOST_ROWS) + 1).astype(int))


def _gate_rows(bins: Bins) -> np.ndarray:
    """Cut, ten rows between, and free: gates of exactly 0 or 1 are not joined with their neighbours."""
    return np.unique([0, *(1 + np.linspace(0, bins.size - 2, 11).astype(int)), bins.size])


def _merge(histograms: list[Histogram]) -> Histogram:
    bins = histograms[-1].bins
    return reduce(add, [histogram for histogram in histograms if histogram.bins == bins])
