"""GSPO: the reward belongs to the whole answer, so the ratio and its clip do too.

    J   = 1/G sum_i min(s_i A_i, clip(s_i, 1 - 3e-4, 1 + 4e-4) A_i)
    s_i = exp(1/|y_i| sum_t (log pi_t - log pi_old,t)) = (pi(y_i) / pi_old(y_i))^(1 / |y_i|)
    A_i = (R_i - mean R) / std R

Source: arXiv 2507.18071, eq. 5 to 7 (clip 3e-4 / 4e-4, 4 mini-batches a step).

Against its neighbour GRPO: one token's ratio is a single draw and says little about how far the policy
moved; noise in it adds up over long answers, and with mixture-of-experts models a changed route
alone moves it far. The geometric mean over the answer is steady, and stays within thousandths of 1:
hence the tiny clip range. GRPO's 0.2 would never act. Clipping 10 to 30 % of the answers is normal, and an
answer is clipped as a whole, unlike GRPO, which drops single tokens.
Against SAPO: a hard edge for the whole answer, instead of a soft one for each token.
Under token-mean the answers would be weighted by length, which is not GSPO: recipes refuse it.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import seq_mean_token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_ratio
from trimtab.objectives.surrogate import Clip


def gspo(*, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Algorithm:
    """GSPO: sequence ratio, sequence clip, every answer the same weight."""
    policy = PolicyGradient(sequence_ratio, Clip(clip_low, clip_high))
    return Algorithm(
        "gspo", advantage=GroupRelative(), objective=Objective(((1.0, policy),), seq_mean_token_mean)
    )
