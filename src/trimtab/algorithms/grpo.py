"""GRPO: the other answers to the same prompt are the baseline; no critic.

    J    = 1/G sum_i 1/|y_i| sum_t [ min(r_it A_i, clip(r_it, 1 - 0.2, 1 + 0.2) A_i) - 0.04 k3_it ]
    A_i  = (R_i - mean R) / std R over the G answers to one prompt
    r_it = pi(y_it) / pi_old(y_it)
    k3   = exp(d) - d - 1,   d = log pi_ref(y_it) - log pi(y_it)

Source: DeepSeekMath, arXiv 2402.03300, eq. 3 and 4, section 4.2 (KL coefficient 0.04, G = 64, learning rate
1e-6, one update a step). The paper names no clip range; 0.2 is PPO's. With its single update every ratio
is 1, so the clip never acts there.

Against its neighbour PPO: no second network, one number an answer instead of one a token, the KL in the
loss. There k3's value estimates KL(pi || pi_ref), but its gradient is the one of KL(pi_ref || pi): see
``ops/kl.py``.
Against DAPO: every answer has the same weight, so a token of a long answer counts less than one of a short
answer; one clip range for both sides; groups that are all right or all wrong stay in the batch, with no
policy gradient of their own.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import seq_mean_token_mean
from trimtab.objectives.objective import Objective, present
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.regularizers import ReferenceKL
from trimtab.objectives.surrogate import Clip


def grpo(*, clip_low: float = 0.2, clip_high: float = 0.2, kl_coef: float = 0.04) -> Algorithm:
    """GRPO. ``kl_coef`` 0 leaves the KL term out and needs no reference model."""
    terms = present(
        (1.0, PolicyGradient(token_ratio, Clip(clip_low, clip_high))),
        (kl_coef, ReferenceKL("k3")),
    )
    return Algorithm("grpo", advantage=GroupRelative(), objective=Objective(terms, seq_mean_token_mean))
