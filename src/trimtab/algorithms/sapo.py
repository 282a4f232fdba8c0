"""SAPO: a gate that closes gradually as a token's ratio leaves 1, instead of a clip's hard edge.

    J    = 1/G sum_i 1/|y_i| sum_t f(r_it) A_i,   r_it = pi(y_it) / pi_old(y_it)
    f(r) = sigmoid(tau (r - 1)) * 4 / tau,        tau = 1.0 where A > 0, else 1.05
    A_i  = (R_i - mean R) / std R
    dJ   = 1/G sum_i 1/|y_i| sum_t w_it r_it A_i grad log pi(y_it)
    w    = f'(r) = 4 p (1 - p) = sech^2(tau (r - 1) / 2),   p = sigmoid(tau (r - 1)),   w(1) = 1

The larger tau, the sharper the gate: w at ratio 1.5 is 0.999 for tau 0.1, 0.940 for 1, 0.280 for 5 and 0.0002
for 20. The gate w is in (0, 1] and is what the metrics report. The factor on A grad log pi is r w, which may
exceed 1 (at most 1.575, at ratio 2.06, for tau 1), but unlike an unclipped ratio it is bounded.
Negative tokens get the larger tau: pushing one token down lifts all others of the vocabulary a
little, which is the less stable direction.

Source: arXiv 2511.20347, eq. 5 to 8, section 5.1 (tau 1.0 / 1.05, 4 mini-batches a step).

Against its neighbour GRPO: no token is dropped at a bound; its gradient fades instead (0.94 of it is left at
ratio 1.5). The gate looks at the distance from 1 only: a token on the losing side (A > 0 and r < 1, or
A < 0 and r > 1), which a clip pulls back with its full gradient, is damped like one on the winning side.
Against GSPO: the ratio is each token's own again, and one wild token no longer silences its whole answer.
When the tokens of an answer move little and together, the mean gate is close to a gate on the sequence
ratio: that is a property (section 4.1), not a term of the loss.
f(1) = 2 / tau, so the loss is not near 0 on policy (-0.048 for half +1, half -1). It says nothing;
read the gate, the gradient norm and the reward. With one update a step the gate is 1 everywhere.
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
