"""RLOO: REINFORCE for whole answers, each judged by the mean of the others.

    J   = 1/N sum_i A_i sum_t r_it,       A_i = R_i - 1/(G - 1) sum_{j != i} R_j
    at r = 1 its gradient is 1/N sum_i A_i grad log pi(y_i)

Source: arXiv 2402.14740, sections 2.3 and 3 (an answer is one action; no clip, since it acted on less than
5 % of a batch; 2 or 4 answers a prompt). The paper's R holds a KL penalty to the reference, coefficient 0.03
or 0.10 by data set. This preset has none; ``kl_in_reward = {coef = 0.03}`` adds it.

Against its neighbour GRPO: a baseline that leaves the judged answer out, so the gradient is unbiased; no
division by std or by length; no trust region. It is meant for one update a step: with more, put a clip
around it (``surrogate = {name = "clip", low = 0.2, high = 0.2}``). Against Dr. GRPO: G / (G - 1) times the
same advantage, over no constant length.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import LeaveOneOut
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import seq_mean_token_sum
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Unclipped


def rloo() -> Algorithm:
    """RLOO: leave-one-out baseline, summed tokens, no trust region."""
    policy = PolicyGradient(token_ratio, Unclipped())
    return Algorithm(
        "rloo", advantage=LeaveOneOut(), objective=Objective(((1.0, policy),), seq_mean_token_sum)
    )
