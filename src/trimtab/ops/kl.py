"""Three estimators of the KL divergence to a reference, one number a token.

With d = log pi(token) - log pi_ref(token), token drawn from pi:

    k1 = d                      unbiased, high variance, negative for many tokens
    k2 = d^2 / 2                biased, low variance, never negative
    k3 = exp(-d) - 1 + d        unbiased, low variance, never negative

As a *number to report*, k1 and k3 are exact on average, and k3 is calmer while pi is near pi_ref. As a
*penalty in the reward*, only k1 makes the policy gradient that of the reverse KL.
As a *term of the loss* what counts is the gradient, expected over tokens drawn from pi:

    k1         0: differentiating d gives grad log pi, whose mean is 0. It regularises nothing.
    k2         the gradient of KL(pi || pi_ref), the reverse KL that most people mean
    k3         the gradient of KL(pi_ref || pi), the forward KL: another pull, towards covering
    r * k3     with r = pi / pi_old kept in the graph: the reverse KL again (so does r * k1)

Only k3 takes an exponential. It is clamped where pi << pi_ref, at d = -LOG_RATIO_LIMIT: beyond it
the value stays at exp(20) and the gradient is 0, which is exactly where the pull would be strongest,
so ``kl_clamped`` counts these tokens. For d > 0 nothing can overflow and nothing is clamped.

Source: J. Schulman, "Approximating KL divergence" (2020); GRPO's use of k3: arXiv 2402.03300, eq. 4.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +-this (nats) before exp: exp(20) = 4.9e8 is far from overflow in float32."""

KLEstimator = Literal["k1", "k2", "k3"]


def k1(log_ratio_T: Tensor) -> Tensor:
    """d itself, in nats; any sign."""
    return log_ratio_T


def k2(log_ratio_T: Tensor) -> Tensor:
    """d^2 / 2; >= 0."""
    return 0.5 * log_ratio_T.square()


def k3(log_ratio_T: Tensor) -> Tensor:
    """exp(-d) - 1 + d; >= 0; d clamped from below at -LOG_RATIO_LIMIT."""
    bounded_T = log_ratio_T.clamp(min=-LOG_RATIO_LIMIT)
    return torch.expm1(-bounded_T) + bounded_T


ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def kl_clamped(log_ratio_T: Tensor, estimator: KLEstimator) -> Tensor:
    """True where this estimator's log-difference was clamped before exp. NaN is never called clamped."""
    if estimator == "k3":
        return log_ratio_T < -LOG_RATIO_LIMIT
    return torch.zeros_like(log_ratio_T, dtype=torch.bool)
