"""Dr. GRPO: GRPO without its two divisions, by the group's std and by the answer's length.

    J    = 1/(N C) sum_i sum_t min(r_it A_i, clip(r_it, 1 - 0.2, 1 + 0.2) A_i)
    A_i  = R_i - mean R over the group
    r_it = pi(y_it) / pi_old(y_it),   N answers, C a constant length

Source: arXiv 2503.20783, section 3 (clip 0.2, no KL, 8 answers a prompt, learning rate 1e-6). The paper's
formula has no C. Its listing divides by one, the longest answer that can be sampled (3000 in its runs):
that scales the step and changes nothing else.

Against its neighbour GRPO: dividing by |y_i| makes a long wrong answer cheaper per token than a short
one, so wrong answers grow; dividing by std makes prompts that are nearly solved or nearly hopeless count
more. Here both are gone: every token of the step has the same weight 1/(N C), and C never changes.
Against DAPO's token-mean: that divides by the tokens of this update, so the step of one token depends
on how long the others are.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import SeqMeanTokenSumNorm
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Clip


def dr_grpo(*, clip_low: float = 0.2, clip_high: float = 0.2, max_new_tokens: int = 3000) -> Algorithm:
    """Dr. GRPO. In a recipe C is ``sampling.max_new_tokens``, unless ``aggregate.horizon`` is set."""
    policy = PolicyGradient(token_ratio, Clip(clip_low, clip_high))
    return Algorithm(
        "dr_grpo",
        advantage=GroupRelative(scale="none"),
        objective=Objective(((1.0, policy),), SeqMeanTokenSumNorm(max_new_tokens)),
    )
