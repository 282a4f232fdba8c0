"""What a step drew, kept, carried and wasted, and how much of the prompt pool the run has reached."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.metrics import Difference, Max, Mean, Metrics, Sum
from trimtab.types import ScoredGroup

WASTED = ("stale", "surplus")
"""Reasons for which a group that could teach is thrown away."""

EASE = {"hopeless": 0, "learning": 1, "mastered": 2}


def selection_metrics(
    *,
    wanted: int,
    rounds: int,
    fresh: Sequence[ScoredGroup],
    fresh_kept: int,
    trained: Sequence[ScoredGroup],
    carried_in: int,
    carried_out: int,
    dropped: Mapping[str, int],
    version: int,
) -> Metrics:
    """Counts of a step, each kind apart.

    wanted: groups the step asked for; rounds: times prompts were drawn; fresh: every group sampled in the
    step, fresh_kept of them worth training on; trained: the groups trained on, carried_in of them sampled
    earlier; carried_out: kept groups that wait; dropped: reason -> groups; version: of the policy.
    """
    counts = {
        "draws": len(fresh),
        "rounds": rounds,
        "rollouts": sum(len(scored.group.rollouts) for scored in fresh),
        "tokens_sampled": int(_lengths(fresh).sum()),
        "tokens_trained": int(_lengths(trained).sum()),
        "groups_kept": fresh_kept,
        "groups_trained": len(trained),
        "groups_carried_in": carried_in,
        "groups_carried_out": carried_out,
        "groups_wasted": sum(dropped.get(reason, 0) for reason in WASTED),
    }
    metrics: Metrics = {f"flow/{name}": Sum(float(count)) for name, count in counts.items()}
    metrics |= {f"flow/dropped/{reason}": Sum(float(n)) for reason, n in dropped.items() if n}
    ages = [version - rollout.version for scored in trained for rollout in scored.group.rollouts]
    return metrics | {
        "flow/keep_rate": Mean(float(fresh_kept), float(len(fresh))),
        "flow/fill": Mean(float(len(trained)), float(wanted)),
        "flow/pass_shift": Difference(_values(trained), _values(fresh)),
        "flow/length_shift": Difference(Mean.of(_lengths(trained)), Mean.of(_lengths(fresh))),
        "staleness/mean": Mean.of(ages),
        "staleness/max": Max.of(ages),
    }


def pool_metrics(
    *,
    prompts: int,
    drawn: int,
    trained: int,
    bands: Mapping[Any, int],
    moves: Mapping[tuple[Any, Any], int],
    pass_rate: float | None,
    drawn_lately: int,
    trained_lately: int,
    trained_pass_rate: float | None,
) -> Metrics:
    """Coverage of the pool so far.

    prompts: training prompts; drawn, trained: how many of them at least once; bands: prompts that are
    hopeless, learning, mastered; moves: (from, to) -> changes of band; pass_rate: mean over seen prompts;
    drawn_lately, trained_lately: how many of them lately; trained_pass_rate: mean over the latter.
    """
    easier, harder = 0, 0
    for (before, after), count in moves.items():
        if str(before) in EASE and str(after) in EASE:
            easier += count * (EASE[str(after)] > EASE[str(before)])
            harder += count * (EASE[str(after)] < EASE[str(before)])
    size = float(prompts)
    metrics: Metrics = {
        "pool/drawn": Mean(float(drawn), size),
        "pool/trained": Mean(float(trained), size),
        "pool/drawn_lately": Mean(float(drawn_lately), size),
        "pool/trained_lately": Mean(float(trained_lately), size),
        **{f"pool/{band}": Mean(float(n), size) for band, n in bands.items() if str(band) in EASE},
        "pool/moves_easier": Sum(float(easier)),
        "pool/moves_harder": Sum(float(harder)),
    }
    if pass_rate is not None:
        metrics["pool/pass_rate"] = Mean.of(pass_rate)
        if trained_pass_rate is not None:
            metrics["pool/pass_shift"] = Mean.of(trained_pass_rate - pass_rate)
    return metrics


def _lengths(groups: Sequence[ScoredGroup]) -> np.ndarray:
    return np.array([r.length for scored in groups for r in scored.group.rollouts], dtype=np.float64)


def _values(groups: Sequence[ScoredGroup]) -> Mean:
    return Mean.of(np.concatenate([np.empty(0), *(scored.values for scored in groups)]))
