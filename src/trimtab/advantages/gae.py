"""Generalised advantage estimation: per-token advantages from a critic.

Over the trained tokens t of one answer, in order, with V_{n+1} = 0 (or a bootstrap):

    delta_t = r_t + gamma V_{t+1} - V_t
    A_t     = delta_t + gamma lam A_{t+1}
    R_t     = A_t + V_t

r_t is ``kl_rewards_T`` (where there is one), plus the answer's ``rewards_S`` at its last trained token.
Tokens that are not the policy's (tool output) are stepped over: the next trained token is the next one.

Source: arXiv 1506.02438, eq. 16; the returns and whitening are conventions of PPO's code.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.errors import SettingError
from trimtab.types import UNIFORM_TOLERANCE, Batch

WHITENING_EPS = 1e-8


@dataclass(frozen=True, slots=True)
class GAE:
    """Columns ``advantages_T`` and ``returns_T``, float64, 0 where masked. Needs ``values_T``.

    gamma: discount a token, in (0, 1]. 1 for answers with one reward at the end.
    lam: in [0, 1]. 0 trusts the critic one token ahead, 1 waits for the reward.
    whiten: advantages minus their mean over their std (sample, + 1e-8), over all trained tokens of the
        batch given, so give it a whole step. A single token is left as it is; advantages that are all
        alike become 0. Returns are made before whitening.
    bootstrap_truncated: a truncated answer's V_{n+1} is the critic's value after its last token, read
        from the column ``bootstrap_S``. Off by default: an answer that hit the length limit has failed
        and was graded so; a hopeful value after the cut would take the punishment for rambling back.
    """

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = False
    bootstrap_truncated: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise SettingError(f"GAE needs gamma in (0, 1], got {self.gamma}; answers usually take 1")
        if not 0.0 <= self.lam <= 1.0:
            raise SettingError(f"GAE needs lam in [0, 1], got {self.lam}; 0.95 is common")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"values_T", "bootstrap_S"} if self.bootstrap_truncated else {"values_T"})

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        token_K = batch.mask_T.nonzero().squeeze(1)
        seq_K = batch.seq_T[token_K]
        values_K = batch.values_T[token_K].to(torch.float64)
        goes_on_K = torch.zeros_like(seq_K, dtype=torch.bool)
        goes_on_K[:-1] = seq_K[1:] == seq_K[:-1]
        after_K = torch.where(goes_on_K, values_K.roll(-1), self._after_the_end(batch, seq_K))
        delta_K = _rewards(batch, token_K, seq_K, ~goes_on_K) + self.gamma * after_K - values_K
        advantages_K = discounted_sums(delta_K, seq_K, self.gamma * self.lam)
        returns_K = advantages_K + values_K
        if self.whiten:
            advantages_K = whitened(advantages_K)
        zeros_T = torch.zeros(batch.num_tokens, dtype=torch.float64, device=batch.mask_T.device)
        return {
            "advantages_T": zeros_T.index_put((token_K,), advantages_K),
            "returns_T": zeros_T.index_put((token_K,), returns_K),
        }

    def _after_the_end(self, batch: Batch, seq_K: Tensor) -> Tensor:
        if not self.bootstrap_truncated:
            return torch.zeros_like(seq_K, dtype=torch.float64)
        if "bootstrap_S" not in batch.columns:
            raise SettingError(
                "GAE's bootstrap_truncated needs the column bootstrap_S (the critic's value after the last "
                "token of each answer), which this trainer does not fill; set bootstrap_truncated = false"
            )
        bootstrap_S = batch.columns["bootstrap_S"].to(torch.float64)
        return torch.where(batch.truncated_S, bootstrap_S, 0.0)[seq_K]

    def __str__(self) -> str:
        return f"GAE {self.gamma:g} / {self.lam:g}" + (", whitened" if self.whiten else "")


def discounted_sums(x_K: Tensor, seq_K: Tensor, factor: float) -> Tensor:
    """y_t = x_t + factor * y_{t+1} within each sequence, without a loop over tokens.

    Doubling: after j rounds y_t holds the first 2^j summands, so log2(longest) rounds are enough.
    """
    y_K = x_K
    longest = int(torch.bincount(seq_K).max()) if len(seq_K) else 0
    reach = 1
    while reach < longest:
        same_K = seq_K[reach:] == seq_K[:-reach]
        y_K = torch.cat([y_K[:-reach] + torch.where(same_K, factor**reach * y_K[reach:], 0.0), y_K[-reach:]])
        reach *= 2
    return y_K


def whitened(advantages_K: Tensor) -> Tensor:
    """(A - mean) / (std + 1e-8); left as it is below two tokens, 0 where all are alike."""
    if len(advantages_K) < 2:
        return advantages_K
    centred_K = advantages_K - advantages_K.mean()
    if bool(advantages_K.max() - advantages_K.min() <= UNIFORM_TOLERANCE):
        return torch.zeros_like(centred_K)
    return centred_K / (centred_K.square().sum() / (len(centred_K) - 1)).sqrt().add(WHITENING_EPS)


def _rewards(batch: Batch, token_K: Tensor, seq_K: Tensor, last_K: Tensor) -> Tensor:
    terminal_K = torch.where(last_K, batch.rewards_S.to(torch.float64)[seq_K], 0.0)
    kl_T = batch.columns.get("kl_rewards_T")
    return terminal_K if kl_T is None else terminal_K + kl_T[token_K].to(torch.float64)
