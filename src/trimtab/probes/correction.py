"""What the rollout correction did to an update: factors, how many were bounded, how far the policies are."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.metrics import EffectiveShare, Max, Mean, Metrics, Sum
from trimtab.types import Batch


def correction_metrics(batch: Batch) -> Metrics:
    """``correction/*`` over the trained tokens of a batch; nothing where no correction is on.

    ``correction/k3`` is of the unbounded token weights, whatever the correction's level.
    """
    factor_T = batch.columns.get("correction_T")
    if factor_T is None:
        return {}
    mask_T = batch.mask_T.cpu().numpy()
    factor_N = factor_T.cpu().numpy()[mask_T]
    side_N = batch.columns["correction_side_T"].cpu().numpy()[mask_T]
    old_N = batch.old_logprobs_T.cpu().numpy()[mask_T].astype(np.float64)
    log_ratio_N = old_N - batch.rollout_logprobs_T.cpu().numpy()[mask_T].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        k3_N = np.expm1(log_ratio_N) - log_ratio_N
    return {
        "correction/factor": Mean.of(factor_N),
        "correction/factor_max": Max.of(factor_N),
        "correction/high": Mean.of(side_N > 0),
        "correction/low": Mean.of(side_N < 0),
        "correction/ess": EffectiveShare.of(factor_N),
        "correction/k3": Mean.of(k3_N),
        "correction/clamped": Sum.of(batch.columns["correction_clamped_T"].cpu().numpy()[mask_T]),
    }
