"""The ``[evaluation]`` table: how often, on how many prompts, with how many answers each."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """How the policy is measured on held-out prompts, with a sampler of its own.

    every: steps between evaluations; 0 evaluates only the start and the final policy.
    samples: answers a prompt; pass@k is unbiased, so every k needs k <= samples.
    prompts: held-out prompts used, the first of them; None uses all.
    ks: the k of pass@k, 1 among them; maj@k is given for the largest.
    temperature: > 0; of the evaluation's sampler, whatever training uses.
    max_new_tokens: response tokens at most; None takes the value of training.

    Raises SettingError on numbers that cannot be measured.
    """

    every: int = 0
    samples: int = 8
    prompts: int | None = None
    ks: tuple[int, ...] = (1, 8)
    temperature: float = 1.0
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.every < 0:
            raise SettingError(f"evaluation.every must be >= 0 (0: only start and final), got {self.every}")
        for name in ("samples", "prompts", "max_new_tokens"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise SettingError(f"evaluation.{name} must be >= 1, got {number}")
        if 1 not in self.ks or min(self.ks) < 1:
            raise SettingError(f"evaluation.ks must hold 1 and no smaller number, got {list(self.ks)}")
        if max(self.ks) > self.samples:
            raise SettingError(
                f"evaluation.ks asks for pass@{max(self.ks)} but evaluation.samples is {self.samples}: "
                "pass@k is unbiased only for k <= samples; "
                f"set evaluation.samples = {max(self.ks)} or leave this k out"
            )
        if not 0.0 < self.temperature < float("inf"):
            raise SettingError(
                f"evaluation.temperature must be > 0, got {self.temperature}; "
                "set 0.01 for nearly greedy answers"
            )
