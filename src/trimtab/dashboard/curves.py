"""Curves for a screen: no more points than it can show, with the smallest and largest value of each."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.record.history import History, Series

MOST_POINTS = 4000


def curve(series: Series, points: int, after: int | None = None) -> dict[str, Any]:
    """``steps`` and ``values``; where there are more than ``points``, means of equal runs of steps.

    Then ``low`` and ``high`` hold the extremes of each run, so that no spike is smoothed away. ``after``:
    only steps beyond this one, for what came since the last look.
    """
    steps, values = series
    if after is not None:
        first = int(np.searchsorted(steps, after, side="right"))
        steps, values = steps[first:], values[first:]
    points = max(2, min(points, MOST_POINTS))
    if len(steps) <= points:
        return {"steps": steps.tolist(), "values": _plain(values)}
    edges = np.linspace(0, len(steps), points + 1).astype(np.int64)[:-1]
    sizes = np.diff([*edges, len(steps)])
    return {
        "steps": steps[np.append(edges[1:], len(steps)) - 1].tolist(),
        "values": _plain(np.add.reduceat(values, edges) / sizes),
        "low": _plain(np.minimum.reduceat(values, edges)),
        "high": _plain(np.maximum.reduceat(values, edges)),
    }


def curves(history: History, keys: list[str], points: int, after: int | None = None) -> dict[str, Any]:
    """``curve`` for each key that the run has."""
    known = set(history.keys)
    return {key: curve(history.series(key), points, after) for key in keys if key in known}


def _plain(values: np.ndarray) -> list[float]:
    """Seven digits are more than a screen shows, and halve what is sent."""
    return [float(f"{value:.7g}") for value in values.tolist()]
