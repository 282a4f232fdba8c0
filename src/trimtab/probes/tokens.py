"""The trained tokens of one update as plain float64 columns: what every probe of an update reads."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trimtab.types import Batch, Trace

Column = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedTokens:
    """Columns over trained tokens (``mask_T`` True) in the batch's order; None where there is none.

    [N] is every trained token that the update computed; [M] every trained token, those included that a
    trainer left out because they have exactly no gradient (``silent``): they have an advantage and no trace.
    ``seq_N`` int64 is non-decreasing; ``log_ratio_N`` = new - old, unclamped; ``ratio_N`` and ``gate_N``
    as the surrogate used them; ``clamped_N``, ``value_clipped_N`` are 0 or 1.
    """

    num_sequences: int
    silent: int
    advantage_M: Column | None
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
    routing_N: Column | None

    @classmethod
    def of(cls, batch: Batch, trace: Trace | None = None) -> TrainedTokens:
        """Take the masked-in entries. What stands at masked tokens cannot reach any metric."""
        trace = Trace() if trace is None else trace
        mask_T = _array(batch.mask_T)
        silent_T = mask_T & _silent(batch, trace)
        seen_T = mask_T & ~silent_T
        columns = batch.columns
        new_N = _pick(trace.logprobs_T, seen_T)
        old_N = _pick(columns.get("old_logprobs_T"), seen_T)
        sampler_N = _pick(batch.rollout_logprobs_T, seen_T)
        assert sampler_N is not None, "every batch has the sampler's log-probabilities"
        return cls(
            num_sequences=batch.num_sequences,
            silent=int(silent_T.sum()),
            advantage_M=_pick(columns.get("advantages_T"), mask_T),
            seq_N=_array(batch.seq_T)[seen_T],
            new_N=new_N,
            old_N=old_N,
            ref_N=_pick(columns.get("ref_logprobs_T"), seen_T),
            sampler_N=sampler_N,
            log_ratio_N=None if new_N is None or old_N is None else new_N - old_N,
            ratio_N=_pick(trace.ratio_T, seen_T),
            gate_N=_pick(trace.gate_T, seen_T),
            clamped_N=_pick(trace.clamped_T, seen_T),
            entropy_N=_pick(trace.entropy_T, seen_T),
            advantage_N=_pick(columns.get("advantages_T"), seen_T),
            weight_N=_pick(columns.get("weights_T"), seen_T),
            value_N=_pick(columns.get("values_T"), seen_T),
            return_N=_pick(columns.get("returns_T"), seen_T),
            value_clipped_N=_pick(trace.value_clipped_T, seen_T),
            routing_N=_pick(trace.routing_T, seen_T),
        )

    def sequence_means(self, x_N: Column) -> Column:
        """Mean over the trained tokens of each sequence that has one, [sequences with a token]."""
        counts_S = np.bincount(self.seq_N, minlength=self.num_sequences)
        sums_S = np.bincount(self.seq_N, weights=x_N, minlength=self.num_sequences)
        trained_S = counts_S > 0
        return sums_S[trained_S] / counts_S[trained_S]


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()


def _pick(x_T: Tensor | None, chosen_T: NDArray[np.bool_]) -> Column | None:
    return None if x_T is None else _array(x_T)[chosen_T].astype(np.float64)


def _silent(batch: Batch, trace: Trace) -> NDArray[np.bool_]:
    """Tokens of answers that the trainer left out: NaN throughout the trace, and nothing to push there.

    A NaN in an answer that does have a gradient is no omission, and stays to be named.
    """
    if trace.logprobs_T is None or "advantages_T" not in batch.columns:
        return np.zeros(batch.num_tokens, dtype=np.bool_)
    unseen_T, seq_T = np.isnan(_array(trace.logprobs_T)), _array(batch.seq_T)
    pushed_T = _array(batch.mask_T) & (_array(batch.columns["advantages_T"]) != 0)
    spoken_S = np.bincount(seq_T, weights=~unseen_T | pushed_T, minlength=batch.num_sequences)
    return spoken_S[seq_T] == 0
