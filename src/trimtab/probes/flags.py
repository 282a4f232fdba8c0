"""Which groups of a step deserve a look: their tokens are recorded whatever ``record.tokens`` says."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.probes.tokens import Column, TrainedTokens
from trimtab.types import Batch, GradeState, ScoredGroup, Trace

FAULTS = {GradeState.GRADER_FAILED: "grader failed", GradeState.TIMEOUT: "grader timed out"}


def flagged_groups(groups: Sequence[ScoredGroup], updates: Iterable[tuple[Batch, Trace]]) -> dict[str, str]:
    """Group key -> why it is flagged; the first reason found counts.

    Flagged are groups with a grader fault, with a log-probability that is not finite or was clamped, and
    the one group of the step whose token moved furthest from the old policy.
    """
    flags: dict[str, str] = {}
    for scored in groups:
        for grade in scored.grades:
            if grade.state in FAULTS:
                flags.setdefault(scored.group.key, FAULTS[grade.state])
    furthest, size = "", 0.0
    for batch, trace in updates:
        tokens = TrainedTokens.of(batch, trace)
        if tokens.log_ratio_N is None or not len(tokens.seq_N):
            continue
        finite_N = np.isfinite(tokens.log_ratio_N)
        _flag(flags, batch, tokens.seq_N[~finite_N], "a log-probability is not finite")
        if tokens.clamped_N is not None:
            _flag(flags, batch, tokens.seq_N[tokens.clamped_N > 0], "a log-ratio was clamped")
        moved_N: Column = np.where(finite_N, np.abs(tokens.log_ratio_N), 0.0)
        most = int(moved_N.argmax())
        if moved_N[most] > size:
            furthest, size = group_key(batch.keys_S[int(tokens.seq_N[most])]), float(moved_N[most])
    if furthest:
        flags.setdefault(furthest, f"largest log-ratio of the step, {size:.3g}")
    return flags


def group_key(rollout_key: str) -> str:
    """The group's key inside a rollout's: ``sums-17#0/3`` -> ``sums-17#0``."""
    return rollout_key.rpartition("/")[0]


def _flag(flags: dict[str, str], batch: Batch, sequences: Sequence[int] | np.ndarray, reason: str) -> None:
    for sequence in np.unique(sequences).tolist():
        flags.setdefault(group_key(batch.keys_S[int(sequence)]), reason)
