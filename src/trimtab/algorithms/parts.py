"""An algorithm taken apart into the pieces that a recipe can name, and put together again."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.algorithms.algorithm import AdvantageEstimator, Algorithm
from trimtab.data.selection import Selection
from trimtab.errors import SettingError
from trimtab.objectives.correction import Correction
from trimtab.objectives.objective import Aggregate, Objective, Term
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import Ratio
from trimtab.objectives.regularizers import EntropyBonus, EntropyTarget, ReferenceKL
from trimtab.objectives.surrogate import Surrogate
from trimtab.objectives.value import ClippedValueLoss
from trimtab.rewards.kl import KLInReward
from trimtab.rewards.shaping import LengthShaping, RewardScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The pieces of an algorithm. The first four make it one; the others may be absent.

    kl, value, entropy: a term of the loss with its coefficient.
    """

    advantage: AdvantageEstimator | None = None
    ratio: Ratio | None = None
    surrogate: Surrogate | None = None
    aggregate: Aggregate | None = None
    kl: tuple[float, ReferenceKL] | None = None
    value: tuple[float, ClippedValueLoss] | None = None
    entropy: tuple[float, EntropyBonus] | None = None
    reward: RewardScale = RewardScale()
    selection: Selection | None = None
    shaping: LengthShaping | None = None
    overlong_filter: bool = False
    kl_in_reward: KLInReward | None = None
    entropy_target: EntropyTarget | None = None
    correction: Correction | None = None

    @classmethod
    def of(cls, algorithm: Algorithm) -> Parts:
        """Raises TypeError for terms or policies that no recipe can spell (an algorithm made in code)."""
        policy: PolicyGradient | None = None
        kl = value = entropy = None
        for coefficient, term in algorithm.objective.terms:
            match term:
                case PolicyGradient() if coefficient == 1.0 and policy is None:
                    policy = term
                case ReferenceKL() if kl is None:
                    kl = coefficient, term
                case ClippedValueLoss() if value is None:
                    value = coefficient, term
                case EntropyBonus() if entropy is None:
                    entropy = coefficient, term
                case _:
                    raise TypeError(f"no recipe can spell the term {coefficient:g} * {term!r}")
        return cls(
            advantage=algorithm.advantage,
            ratio=policy.ratio if policy else None,
            surrogate=policy.surrogate if policy else None,
            aggregate=algorithm.objective.aggregate,
            kl=kl,
            value=value,
            entropy=entropy,
            reward=algorithm.reward,
            selection=algorithm.selection,
            shaping=algorithm.shaping,
            overlong_filter=algorithm.overlong_filter,
            kl_in_reward=algorithm.kl_in_reward,
            entropy_target=algorithm.entropy_target,
            correction=algorithm.correction,
        )

    def whole(self, name: str) -> Algorithm:
        """The algorithm. Raises SettingError where one of the four pieces is missing."""
        if self.advantage is None or self.ratio is None or self.surrogate is None or self.aggregate is None:
            four = ("advantage", "ratio", "surrogate", "aggregate")
            missing = [f"algorithm.{key}" for key in four if getattr(self, key) is None]
            raise SettingError(
                f"an algorithm needs {', '.join(missing)}; a custom one has to spell each of them"
            )
        terms: list[tuple[float, Term]] = [(1.0, PolicyGradient(self.ratio, self.surrogate))]
        terms += [term for term in (self.kl, self.value) if term is not None and term[0] != 0.0]
        entropy = self.entropy
        if self.entropy_target is not None:
            entropy = entropy or (0.0, EntropyBonus())
        elif entropy is not None and entropy[0] == 0.0:
            entropy = None
        terms += [entropy] if entropy is not None else []
        return Algorithm(
            name,
            advantage=self.advantage,
            objective=Objective(tuple(terms), self.aggregate),
            reward=self.reward,
            selection=self.selection,
            shaping=self.shaping,
            overlong_filter=self.overlong_filter,
            kl_in_reward=self.kl_in_reward,
            entropy_target=self.entropy_target,
            correction=self.correction,
        )
