"""What the trained groups are optimised for: rewards after scale and shaping."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.metrics import Mean, Metrics, Std
from trimtab.types import RewardedGroup


def reward_metrics(groups: Sequence[RewardedGroup], *, penalty_free: int | None = None) -> Metrics:
    """Metrics of the groups trained on. Ungraded rollouts (reward NaN) count nowhere.

    penalty_free: the longest length without a length penalty; None leaves the shaping metrics out.
    """
    graded = [~np.isnan(group.rewards) for group in groups]
    rewards = [group.rewards[mask] for group, mask in zip(groups, graded, strict=True)]
    if not any(len(own) for own in rewards):
        return {}
    joined = np.concatenate(rewards)
    spreads = [Std.of(own).value for own in rewards]
    metrics: Metrics = {
        "reward/outcome_trained": Mean.of(np.concatenate([group.scored.values for group in groups])),
        "reward/mean": Mean.of(joined),
        "reward/std": Std.of(joined),
        "groups/reward_std": Mean.of([spread for spread in spreads if spread is not None]),
    }
    if penalty_free is not None:
        parts = np.concatenate([group.shaping[mask] for group, mask in zip(groups, graded, strict=True)])
        metrics["reward/shaping"] = Mean.of(parts)
        metrics["reward/shaping_share"] = Mean.of(parts != 0.0)
    return metrics
