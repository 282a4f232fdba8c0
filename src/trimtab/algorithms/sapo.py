"""SAPO: a gate that closes gradually as a token's ratio leaves 1, instead of a clip's hard edge.

    J      = 1/G sum_i 1/|y_i| sum_t f(r_it) A_i
    f(r)   = sigmoid(tau (r - 1)) * 4 / tau,        tau = 1.0 if A > 0 else 1.05
    dJ     ~ w(r) r A grad log pi,                  w = 4 p (1 - p) = sech^2(tau (r - 1) / 2),  w(1) = 1

The larger tau, the sharper the gate: w at ratio 1.5 is 0.999 for tau 0.1, 0.940 for 1, 0.280 for 5 and 0.0002
for 20. Negative tokens get the larger tau: pushing one token down lifts all others of the vocabulary a
little, which is the less stable direction.

Source: arXiv 2511.20347 (tau 1.0 / 1.05).

Against its neighbour GRPO: no token is dropped at a bound and none passes untouched just inside it. There
is no pull-back either: a token far on the losing side is damped like one on the winning side.
Against GSPO: the ratio is each token's own again. When the tokens of an answer move little and together,
the mean gate is close to a gate on the sequence ratio: that is a property, not a term of the loss.
f(1) = 2 / tau, so the loss is not near 0 on policy (-0.048 for half +1, half -1). It says nothing;
read the gate, the gradient norm and the reward.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import seq_mean_token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import SoftGate


def sapo(*, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Algorithm:
    """SAPO: token ratio under a soft gate. Larger tau is sharper; both must be > 0."""
    policy = PolicyGradient(token_ratio, SoftGate(tau_pos, tau_neg))
    return Algorithm(
        "sapo", advantage=GroupRelative(), objective=Objective(((1.0, policy),), seq_mean_token_mean)
    )
