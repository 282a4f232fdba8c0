"""DAPO: GRPO with four changes, each for one thing that goes wrong in long reasoning.

    J    = 1 / sum_i |y_i|  sum_i sum_t min(r_it A_i, clip(r_it, 1 - 0.2, 1 + 0.28) A_i)
           subject to 0 < right answers < G
    A_i  = (R_i - mean R) / std R,   R = +1 or -1, plus R_length
    r_it = pi(y_it) / pi_old(y_it)

1. Clip-higher: 1 + 0.28 above, 1 - 0.2 below. An unlikely token (0.01) may rise to 0.0128 instead of 0.012;
   the lower bound stays, since widening it would let tokens be pushed to 0. Against entropy collapse.
2. Dynamic sampling: groups that are all right or all wrong have A = 0; others are drawn in their place. The
   rejected answers are still paid for: what is gained is gradient an update, not sampling.
3. Token mean: every token of the update has the same weight, so long answers are neither excused for
   rambling nor denied the credit for good steps.
4. Soft overlong punishment: 0 up to L_max - L_cache tokens, then linear to -1 at L_max, added to the reward.

No KL and no reference model. Source: arXiv 2503.14476, eq. 7 to 13 and section 4.1 (clip 0.2 / 0.28; L_max
20480, L_cache 4096; 512 prompts, G = 16, mini-batches of 512 answers: 16 updates a step; learning rate 1e-6
after 20 steps of warm-up).

Eq. 8 reads as a mean within one prompt's group; the authors' code takes the mean over a whole
mini-batch, which is the default here. ``aggregate = "prompt-mean"`` is the other reading. Overlong filtering
(truncated answers lose their loss tokens) is the first rung of the paper's ladder but none of its four parts:
``overlong_filter = true`` turns it on.

Against its neighbour GRPO: the four changes, rewards of +1 / -1 instead of 1 / 0, no KL. The division by std
makes the scale of the rewards matter only beside the length penalty, which is -1 at most. With one
update a step the first change does nothing, because every ratio is 1.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.selection import Selection
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Clip
from trimtab.rewards.shaping import RewardScale, SoftOverlong


def overlong_buffer_of(max_new_tokens: int) -> int:
    """The paper's share of the longest answer that the overlong ramp takes: 4096 of 20480, a fifth."""
    return max(1, max_new_tokens // 5)


def dapo(
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    overlong_buffer: int | None = None,
    max_new_tokens: int = 20480,
) -> Algorithm:
    """DAPO, all four parts on. ``overlong_buffer`` None takes the paper's share, a fifth of the maximum."""
    buffer = overlong_buffer_of(max_new_tokens) if overlong_buffer is None else overlong_buffer
    policy = PolicyGradient(token_ratio, Clip(clip_low, clip_high))
    return Algorithm(
        "dapo",
        advantage=GroupRelative(),
        objective=Objective(((1.0, policy),), token_mean),
        reward=RewardScale(right=1.0, wrong=-1.0),
        selection=Selection(),
        shaping=SoftOverlong(buffer, maximum=max_new_tokens),
    )
