"""GSPO-token: GSPO's clip on the whole answer, with a gradient that can differ from token to token.

    J    = 1/G sum_i 1/|y_i| sum_t min(s_it A_it, clip(s_it, 1 - 3e-4, 1 + 4e-4) A_it)
    s_it = sg[s_i] * pi_t / sg[pi_t]          value s_i, gradient of token t's own log-probability
    s_i  = exp(1/|y_i| sum_t (log pi_t - log pi_old,t)),   sg stops the gradient

Source: arXiv 2507.18071, section 4.3, eq. 13 and 14 (no numbers of its own; the clip is GSPO's).

Against its neighbour GSPO: with the same advantage for every token of an answer the gradients are equal
(a test holds them together); only with per-token advantages (GAE, rewards for single steps) do they differ.
There GSPO would give every token the mean of them.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import seq_mean_token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_token_ratio
from trimtab.objectives.surrogate import Clip


def gspo_token(*, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Algorithm:
    """GSPO with per-token gradients; equal to GSPO where advantages are constant over an answer."""
    policy = PolicyGradient(sequence_token_ratio, Clip(clip_low, clip_high))
    return Algorithm(
        "gspo_token", advantage=GroupRelative(), objective=Objective(((1.0, policy),), seq_mean_token_mean)
    )
