"""CISPO: cut the importance weight, keep every token.

    J    = 1 / sum_i |y_i|  sum_i sum_t sg[clip(r_it, 1 - low, 1 + high)] A_i log pi(y_it)
    A_i  = (R_i - mean R) / std R
    r_it = pi(y_it) / pi_old(y_it),   sg stops the gradient

Source: MiniMax-M1, arXiv 2506.13585, eq. 4 and 5 (no KL). The paper leaves the lower side open (low 1.0:
weights from 0 up) and tunes the upper one without giving its number: the cap 1 + high = 5 is the choice of
this preset. Some frameworks take ``high`` for the cap itself; here the cap is 1 + high. The paper's runs also
use DAPO's dynamic sampling and length penalty; ``selection`` and ``shaping`` add them.

Against its neighbour DAPO: a clip takes the whole gradient of a token that ran past its bound, and rare
tokens on which a line of reasoning turns run past it first. CISPO bounds their weight instead, so no
token is ever without gradient. The price: past the bound a good token is still pushed on, at the capped
weight, and nothing stops it before the step ends.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import ClippedWeight


def cispo(*, clip_low: float = 1.0, clip_high: float = 4.0) -> Algorithm:
    """CISPO: policy gradient with a clipped, detached importance weight."""
    policy = PolicyGradient(token_ratio, ClippedWeight(clip_low, clip_high))
    return Algorithm("cispo", advantage=GroupRelative(), objective=Objective(((1.0, policy),), token_mean))
