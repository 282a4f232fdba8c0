"""Sign-decoupled clip: one box for good tokens, a tighter one and a damping factor for bad ones.

    A > 0    min(r A, clip(r, 1 - 0.2, 1 + 0.2) A)
    A < 0    0.5 * min(r A, clip(r, 1 - 0.05, 1 + 0.05) A)

with r the token's ratio, A as in GRPO and the mean over all tokens, as in DAPO.

Source: teaching material, where it is called DAPO. It is not the paper's DAPO: that has one minimum with
0.2 below and 0.28 above for both signs, and neither damping nor a learning rate by sign. Hence the name of
its own. The numbers 0.2, 0.05 and 0.5 are the material's.

The material prints ``max`` on the negative side. ``bound = "max"`` offers it as printed; what the text
beside it wants ("gentle suppression") is ``bound = "min"``, the default. Slope of the value in r for A < 0:

    ratio           below 0.95       0.95 to 1.05     above 1.05
    bound = "min"   0                0.5 A            0.5 A
    bound = "max"   0.5 A            0.5 A            0

With max a bad token is pushed down for ever, and one whose probability rose past 1.05 is not corrected. A
maximum belongs to the loss: max(-r A, -clip(r) A) is the minimum with its sign turned. At ratio 1
the two agree, so a run with one update a step cannot show the difference. Measured on one bad token of
probability 1/4 and a batch used 1000 times (plain gradient steps of 0.1): with min its ratio ends at 0.93,
with max at 0.015 and still falling; begun at 1.3, min brings it to 0.92 and max leaves it there. The command
is ``pytest tests/unit/test_sign_decoupled.py``.

Against its neighbour DAPO's clip: because of the minimum only 1 + pos and 1 - neg ever act, so this is Clip
with low 0.05 and high 0.2, plus the factor 0.5. It narrows the lower side where DAPO widens the upper.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Literal

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import SignDecoupledClip


def sign_decoupled(
    *, pos: float = 0.2, neg: float = 0.05, alpha: float = 0.5, bound: Literal["min", "max"] = "min"
) -> Algorithm:
    """Separate clip boxes by the sign of the advantage, the negative branch damped by alpha."""
    policy = PolicyGradient(token_ratio, SignDecoupledClip(pos, neg, alpha, bound))
    return Algorithm(
        "sign_decoupled", advantage=GroupRelative(), objective=Objective(((1.0, policy),), token_mean)
    )
