"""The trained tokens of one update as plain float64 columns: what every probe of an update reads."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trimtab.types import Batch, Trace

Column = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedTokens:
    """Columns over the N tokens with ``mask_T`` True, in the batch's order; None where there is none.

    ``seq_N`` int64 is non-decreasing; ``log_ratio_N`` = new - old, unclamped; ``ratio_N`` and ``gate_N``
    as the surrogate used them; ``clamped_N``, ``value_clipped_N`` are 0 or 1.
    """

    num_sequences: int
    seq_N: Indices
    new_N: Column | None
    old_N: Column | None
    ref_N: Column | None
    sampler_N: Column
    log_ratio_N: Column | None
    ratio_N: Column | None
    gate_N: Column | None
    clamped_N: Column | None
    entropy_N: Column | None
    advantage_N: Column | None
    weight_N: Column | None
    value_N: Column | None
    return_N: Column | None
    value_clipped_N: Column | None

    @classmethod
    def of(cls, batch: Batch, trace: Trace | None = None) -> TrainedTokens:
        """Take the masked-in entries. What stands at masked tokens cannot reach any metric."""
        mask_T = batch.mask_T.detach().cpu().numpy()
        trace = Trace() if trace is None else trace

        def column(x_T: Tensor | None) -> Column | None:
            return None if x_T is None else x_T.detach().cpu().numpy()[mask_T].astype(np.float64)

        new_N, old_N = column(trace.logprobs_T), column(batch.columns.get("old_logprobs_T"))
        sampler_N = column(batch.rollout_logprobs_T)
        assert sampler_N is not None, "every batch has the sampler's log-probabilities"
        return cls(
            num_sequences=batch.num_sequences,
            seq_N=batch.seq_T.cpu().numpy()[mask_T],
            new_N=new_N,
            old_N=old_N,
            ref_N=column(batch.columns.get("ref_logprobs_T")),
            sampler_N=sampler_N,
            log_ratio_N=None if new_N is None or old_N is None else new_N - old_N,
            ratio_N=column(trace.ratio_T),
            gate_N=column(trace.gate_T),
            clamped_N=column(trace.clamped_T),
            entropy_N=column(trace.entropy_T),
            advantage_N=column(batch.columns.get("advantages_T")),
            weight_N=column(batch.columns.get("weights_T")),
            value_N=column(batch.columns.get("values_T")),
            return_N=column(batch.columns.get("returns_T")),
            value_clipped_N=column(trace.value_clipped_T),
        )

    def sequence_means(self, x_N: Column) -> Column:
        """Mean over the trained tokens of each sequence that has one, [sequences with a token]."""
        counts_S = np.bincount(self.seq_N, minlength=self.num_sequences)
        sums_S = np.bincount(self.seq_N, weights=x_N, minlength=self.num_sequences)
        trained_S = counts_S > 0
        return sums_S[trained_S] / counts_S[trained_S]
