"""Trust regions: what is maximised per token, and which share of its gradient is let through.

A surrogate is a frozen value with two methods:

    value_T = surrogate(ratio_T, adv_T, logprobs_T)       to maximise
    gate_T  = surrogate.gate(ratio_T, adv_T)              (d value / d log pi) / (ratio * A)

The gate makes all trust regions comparable: 1 lets the plain policy gradient r * A through, 0 cuts
it. A hard clip's gate is 0 or 1, so its mean is 1 - clip share; a soft gate lies between. Tests hold
each gate against autograd. For A = 0 there is no gradient to share out, and the gate is 1: such a
token counts as cut by nobody. The clamp of log-ratios (``ratio.py``) is not part of the gate.

    Clip                min(r A, clip(r, 1 - low, 1 + high) A)
    DualClip            the same, and for A < 0 never below cap * A
    SoftGate            sigmoid(tau (r - 1)) * 4 / tau * A
    ClippedWeight       sg[clip(r, 1 - low, 1 + high)] * A * log pi
    SignDecoupledClip   one box for A > 0, another with a damping factor for A < 0
    Unclipped           r A
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from trimtab.errors import SettingError


class Surrogate(Protocol):
    """Ratio, advantage and log-probability of each token -> value to maximise, and its gate."""

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor: ...

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Clip:
    """min(r A, clip(r, 1 - low, 1 + high) A).

    The minimum makes each bound one-sided: 1 + high acts only for A > 0, 1 - low only for A < 0. A
    token on the losing side (A > 0 and r < 1 - low) keeps its full gradient and is pulled back.
    gate: 0 for A > 0 and r > 1 + high, 0 for A < 0 and r < 1 - low, else 1 (1 at the bound itself).
    low, high: >= 0, finite. low >= 1 leaves the lower side open.
    Source: arXiv 1707.06347, eq. 7; two bounds, arXiv 2503.14476, eq. 8.
    """

    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        _check_bounds("clip", low=self.low, high=self.high)

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        return _pessimistic(ratio_T, adv_T, self.low, self.high)

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        return _open(_above(ratio_T, adv_T, self.high) | _below(ratio_T, adv_T, self.low), ratio_T)

    def __str__(self) -> str:
        return f"clip {self.low:g} / {self.high:g}"


@dataclass(frozen=True, slots=True)
class DualClip:
    """Clip, and for A < 0: max(min(r A, clip(r) A), cap * A).

    Clip leaves r * A unbounded below where A < 0 and r is large: one stale token can outweigh a
    batch. The cap stops its gradient beyond r = cap.
    gate: that of Clip, and 0 for A < 0 and r > cap. cap > 1; 3 is the usual value.
    Source: dual-clip PPO, arXiv 1912.09729.
    """

    low: float = 0.2
    high: float = 0.2
    cap: float = 3.0

    def __post_init__(self) -> None:
        _check_bounds("dual clip", low=self.low, high=self.high)
        if not (math.isfinite(self.cap) and self.cap > 1.0):
            raise SettingError(f"dual clip needs cap > 1, got {self.cap}; 3 is common")

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        value_T = _pessimistic(ratio_T, adv_T, self.low, self.high)
        return torch.where(adv_T < 0, torch.maximum(value_T, self.cap * adv_T), value_T)

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        cut_T = _above(ratio_T, adv_T, self.high) | _below(ratio_T, adv_T, self.low)
        return _open(cut_T | ((adv_T < 0) & (ratio_T > self.cap)), ratio_T)

    def __str__(self) -> str:
        return f"dual clip {self.low:g} / {self.high:g}, cap {self.cap:g}"


@dataclass(frozen=True, slots=True)
class SoftGate:
    """f(r) A with f(r) = sigmoid(tau (r - 1)) * 4 / tau, tau = tau_pos if A > 0 else tau_neg.

    gate: w = 4 p (1 - p) = sech^2(tau (r - 1) / 2), p = sigmoid(tau (r - 1)); 1 at r = 1, falling
    smoothly on both sides, never quite 0. The larger tau, the *sharper* the gate. w is in (0, 1], the
    factor on A grad log pi is r * w, which can exceed 1 (at most 1.575, at r = 2.06, for tau = 1).
    f(1) = 2 / tau, so the loss is not 0 on policy although the gradient is the plain one.
    tau_pos, tau_neg: > 0; tau_neg > tau_pos lets negative tokens decay faster.
    Source: SAPO, arXiv 2511.20347, eq. 5 to 8.
    """

    tau_pos: float = 1.0
    tau_neg: float = 1.05

    def __post_init__(self) -> None:
        for name, tau in (("tau_pos", self.tau_pos), ("tau_neg", self.tau_neg)):
            if not (math.isfinite(tau) and tau > 0.0):
                raise SettingError(
                    f"soft gate needs {name} > 0, got {tau}; smaller is softer (0.1 hardly acts), "
                    "larger is sharper (20 is nearly a hard clip)"
                )

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        tau_T = self._tau(adv_T)
        return torch.sigmoid(tau_T * (ratio_T - 1.0)) * (4.0 / tau_T) * adv_T

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        p_T = torch.sigmoid(self._tau(adv_T) * (ratio_T - 1.0))
        return torch.where(adv_T == 0, 1.0, 4.0 * p_T * (1.0 - p_T))

    def _tau(self, adv_T: Tensor) -> Tensor:
        return torch.where(adv_T > 0, adv_T.new_tensor(self.tau_pos), adv_T.new_tensor(self.tau_neg))

    def __str__(self) -> str:
        return f"soft gate {self.tau_pos:g} / {self.tau_neg:g}"


@dataclass(frozen=True, slots=True)
class ClippedWeight:
    """sg[clip(r, 1 - low, 1 + high)] * A * log pi: the weight is cut, no token is dropped.

    gate: clip(r) / r. Below the lower bound it exceeds 1, and it is never 0.
    low, high: >= 0, finite; the weight's bounds are 1 - low (0 at least) and 1 + high. low >= 1
    leaves the lower side open. The log-ratio clamp does not stop this gradient, since r is detached.
    Source: CISPO, arXiv 2506.13585, eq. 4 and 5.
    """

    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        _check_bounds("clipped weight", low=self.low, high=self.high)

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        return self._weight(ratio_T.detach()) * adv_T * logprobs_T

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        return torch.where(adv_T == 0, 1.0, self._weight(ratio_T) / ratio_T)

    def _weight(self, ratio_T: Tensor) -> Tensor:
        return ratio_T.clamp(max(0.0, 1.0 - self.low), 1.0 + self.high)

    def __str__(self) -> str:
        return f"weight in [{max(0.0, 1.0 - self.low):g}, {1.0 + self.high:g}]"


@dataclass(frozen=True, slots=True)
class SignDecoupledClip:
    """A box of its own for each sign of the advantage, and a damping factor on the negative side.

        A > 0    min(r A, clip(r, 1 - pos, 1 + pos) A)
        A < 0    alpha * min(r A, clip(r, 1 - neg, 1 + neg) A)         bound = "min"
                 alpha * max(r A, clip(r, 1 - neg, 1 + neg) A)         bound = "max"

    With "min" a bad token is pushed down until its ratio is 1 - neg, at alpha times the speed, and is pushed
    back down, at the same alpha, if it rose. "max" is how teaching material prints this form; it does the
    opposite of what the text beside it says: below 1 - neg the push goes on without limit, and above
    1 + neg, where the token most needs correcting, there is none (see ``algorithms/sign_decoupled.py``).
    gate: A > 0 as Clip; A < 0: alpha where r >= 1 - neg ("min") or r <= 1 + neg ("max"), else 0.
    pos, neg: >= 0, finite; alpha: > 0, finite.
    """

    pos: float = 0.2
    neg: float = 0.05
    alpha: float = 0.5
    bound: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        _check_bounds("sign-decoupled clip", pos=self.pos, neg=self.neg)
        if not (math.isfinite(self.alpha) and self.alpha > 0.0):
            raise SettingError(f"sign-decoupled clip needs alpha > 0, got {self.alpha}; 1 does not damp")
        if self.bound not in ("min", "max"):
            raise SettingError(f'sign-decoupled clip needs bound "min" or "max", got {self.bound!r}')

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        free_T, boxed_T = ratio_T * adv_T, ratio_T.clamp(1.0 - self.neg, 1.0 + self.neg) * adv_T
        pick = torch.minimum if self.bound == "min" else torch.maximum
        positive_T = _pessimistic(ratio_T, adv_T, self.pos, self.pos)
        return torch.where(adv_T > 0, positive_T, self.alpha * pick(free_T, boxed_T))

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        out_T = ratio_T < 1.0 - self.neg if self.bound == "min" else ratio_T > 1.0 + self.neg
        gate_T = _open(_above(ratio_T, adv_T, self.pos) | ((adv_T < 0) & out_T), ratio_T)
        return torch.where(adv_T < 0, self.alpha * gate_T, gate_T)

    def __str__(self) -> str:
        return f"by sign +{self.pos:g} / -{self.neg:g}, alpha {self.alpha:g}, {self.bound}"


@dataclass(frozen=True, slots=True)
class Unclipped:
    """r A: importance-weighted policy gradient without a trust region. gate: 1 everywhere."""

    def __call__(self, ratio_T: Tensor, adv_T: Tensor, logprobs_T: Tensor) -> Tensor:
        return ratio_T * adv_T

    def gate(self, ratio_T: Tensor, adv_T: Tensor) -> Tensor:
        return torch.ones_like(ratio_T)

    def __str__(self) -> str:
        return "none"


SURROGATES: dict[str, type[Surrogate]] = {
    "clip": Clip,
    "dual-clip": DualClip,
    "soft-gate": SoftGate,
    "clipped-weight": ClippedWeight,
    "sign-decoupled-clip": SignDecoupledClip,
    "unclipped": Unclipped,
}


def _pessimistic(ratio_T: Tensor, adv_T: Tensor, low: float, high: float) -> Tensor:
    """The smaller of the free and the clipped value. Inside the box both branches share the slope A."""
    return torch.minimum(ratio_T * adv_T, ratio_T.clamp(1.0 - low, 1.0 + high) * adv_T)


def _above(ratio_T: Tensor, adv_T: Tensor, high: float) -> Tensor:
    return (adv_T > 0) & (ratio_T > 1.0 + high)


def _below(ratio_T: Tensor, adv_T: Tensor, low: float) -> Tensor:
    return (adv_T < 0) & (ratio_T < 1.0 - low)


def _open(cut_T: Tensor, like_T: Tensor) -> Tensor:
    return (~cut_T).to(like_T.dtype)


def _check_bounds(what: str, **bounds: float) -> None:
    for name, bound in bounds.items():
        if not (math.isfinite(bound) and bound >= 0.0):
            raise SettingError(f"{what} needs {name} >= 0 and finite, got {bound}; the box is around ratio 1")
