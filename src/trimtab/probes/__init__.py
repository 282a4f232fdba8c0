"""Pure functions from what the loop has to mergeable metrics. Nothing is measured inside a loss.

group_metrics(sampled groups)      before selection: lengths, grades, pass rates, kinds of groups
selection_metrics(counts)          what was drawn, kept, carried, wasted
pool_metrics(counts)               how much of the prompt pool was reached
reward_metrics(trained groups)     rewards as optimised
mismatch_metrics(batch)            sampler against trainer, before any update
update_metrics(batch, report)      what one update did; merge over the step's updates
time_metrics, pace_metrics, memory_metrics, coefficient_metrics
flagged_groups(groups, updates)    whose tokens to keep
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.probes.cost import memory_metrics, pace_metrics, time_metrics
from trimtab.probes.flags import flagged_groups
from trimtab.probes.flow import pool_metrics, selection_metrics
from trimtab.probes.groups import group_metrics
from trimtab.probes.rewards import reward_metrics
from trimtab.probes.update import coefficient_metrics, mismatch_metrics, update_metrics

__all__ = [
    "coefficient_metrics",
    "flagged_groups",
    "group_metrics",
    "memory_metrics",
    "mismatch_metrics",
    "pace_metrics",
    "pool_metrics",
    "reward_metrics",
    "selection_metrics",
    "time_metrics",
    "update_metrics",
]
