"""What an algorithm is: one frozen value, composed of pieces that each stand alone."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from trimtab.data.selection import Selection
from trimtab.objectives.correction import Correction
from trimtab.objectives.objective import Objective
from trimtab.objectives.regularizers import EntropyTarget
from trimtab.rewards.kl import KLInReward
from trimtab.rewards.shaping import LengthShaping, RewardScale
from trimtab.types import Batch


class AdvantageEstimator(Protocol):
    """Batch of a whole step -> columns (``advantages_T``, with a critic also ``returns_T``)."""

    @property
    def needs(self) -> frozenset[str]: ...

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]: ...


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Everything an algorithm decides, in the order of the loop.

    reward: how grades become rewards (1 and 0, or +1 and -1).
    selection: which groups are kept (dynamic sampling), on the raw outcome; None keeps all.
    shaping: length part added to the reward after selection; None adds nothing.
    overlong_filter: truncated answers lose their loss tokens but keep their place in the baseline.
    kl_in_reward: a KL penalty inside the reward; None has none.
    advantage, objective: see their protocols.
    entropy_target: adapts the entropy bonus' coefficient; None leaves it fixed.
    correction: weighs answers that another policy than the old one has sampled; None takes them as they are.
    """

    name: str
    advantage: AdvantageEstimator
    objective: Objective
    reward: RewardScale = RewardScale()
    selection: Selection | None = None
    shaping: LengthShaping | None = None
    overlong_filter: bool = False
    kl_in_reward: KLInReward | None = None
    entropy_target: EntropyTarget | None = None
    correction: Correction | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Columns the trainer must annotate: they decide whether a reference or a critic exists."""
        made_here = {"advantages_T", "returns_T", "weights_T", "kl_rewards_T", "correction_T"}
        needs = self.objective.needs | self.advantage.needs
        if self.kl_in_reward is not None:
            needs = needs | self.kl_in_reward.needs
        if self.correction is not None:
            needs = needs | self.correction.needs
        return frozenset(needs - made_here)
