"""GSPO: the reward belongs to the whole answer, so the ratio and its clip do too.

    J   = 1/G sum_i min(s_i A_i, clip(s_i, 1 - 3e-4, 1 + 4e-4) A_i)
    s_i = exp(1/|y_i| sum_t (log pi_t - log pi_old,t)) = (pi(y_i) / pi_old(y_i))^(1 / |y_i|)
    A_i = (R_i - mean R) / std R
    dJ  = 1/G sum_i s_i A_i 1/|y_i| sum_t grad log pi_t, over the answers that are not clipped

Source: arXiv 2507.18071, eq. 5 to 7 and 10, section 5.1 (clip 3e-4 / 4e-4, 4 mini-batches a step). The paper
leaves any KL term out of its formulas; there is none here.

Against its neighbour GRPO: there each token's gradient has its own ratio as weight. A single draw says
little about how far a distribution moved; its noise adds up over long answers, and with mixture-of-experts
models a changed route alone moves it far. Here all tokens of an answer share one weight. The geometric
mean is steady and stays within thousandths of 1: hence the tiny clip range, and GRPO's 0.2 would never act.
An answer is clipped as a whole, so much more is clipped, and that is normal: about 15 % of the tokens in the
paper's figure 2, against 0.13 % under GRPO.
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
