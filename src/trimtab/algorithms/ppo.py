"""PPO: a trained critic judges every token, and a clip bounds how far one batch can move the policy.

    J      = 1 / sum_i |y_i|  sum_i sum_t min(r_it A_it, clip(r_it, 1 - 0.2, 1 + 0.2) A_it)
    r_it   = pi(y_it) / pi_old(y_it)
    A_it   = delta_t + gamma lam A_i,t+1,   delta_t = reward_t + gamma V_old,t+1 - V_old,t          (GAE)
    reward = grade at the last token - 0.02 (log pi_old - log pi_ref) at every token
    L_V    = 1/2 max((V - R)^2, (V_old + clip(V - V_old, -0.2, 0.2) - R)^2),   R = A + V_old

Source: arXiv 1707.06347, eq. 7 (clip 0.2; gamma 0.99, lam 0.95; several epochs a batch). For language models:
arXiv 2203.02155, eq. 2 (KL coefficient 0.02 in the reward; no discount, so gamma 1; clip 0.2; 8 mini-batches
a step, one epoch). Clipping the value loss, its factor 1/2, whitening the advantages (after R is made) and
the coefficient 0.1 are conventions of published code; the first paper's value loss is the plain square
(eq. 9). ``value_clip = "none"`` and ``whiten = false`` turn clip and whitening off.

Against its neighbour GRPO: PPO pays for a second network that learns what to expect at every token, so
its advantages differ within an answer and one rollout a prompt is enough; GRPO compares whole answers
to each other and needs no critic. PPO's KL is part of the reward, GRPO's a term of the loss.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.gae import GAE
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective, present
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.regularizers import EntropyBonus
from trimtab.objectives.surrogate import Clip
from trimtab.objectives.value import ClippedValueLoss
from trimtab.rewards.kl import KLInReward


def ppo(
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    gamma: float = 1.0,
    lam: float = 0.95,
    whiten: bool = True,
    value_clip: float | None = 0.2,
    value_coef: float = 0.1,
    kl_coef: float = 0.02,
    entropy_coef: float = 0.0,
) -> Algorithm:
    """PPO with a critic. ``kl_coef`` 0 needs no reference model; ``value_clip`` None is the plain square.

    ``value_coef`` matters where the value head shares the policy's trunk; an own network has its own
    learning rate (``trainer.critic_learning_rate``) and hardly notices it.
    """
    terms = present(
        (1.0, PolicyGradient(token_ratio, Clip(clip_low, clip_high))),
        (value_coef, ClippedValueLoss(value_clip)),
        (entropy_coef, EntropyBonus()),
    )
    return Algorithm(
        "ppo",
        advantage=GAE(gamma=gamma, lam=lam, whiten=whiten),
        objective=Objective(terms, token_mean),
        kl_in_reward=KLInReward(kl_coef) if kl_coef else None,
    )
