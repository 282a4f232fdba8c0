"""The ``[trainer]`` table of a recipe."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trimtab.errors import SettingError, nearest

SCHEDULES = ("constant", "linear", "cosine")
OLD_LOGPROBS = ("auto", "sampler", "recompute")
CRITICS = ("head", "model")
SHARING = ("auto", "never")
FAST = ("auto", "always", "never")
KERNELS = ("none", "cut-cross-entropy")
WORDS = {
    "schedule": SCHEDULES,
    "old_logprobs": OLD_LOGPROBS,
    "critic": CRITICS,
    "share_prompts": SHARING,
    "fast": FAST,
    "kernels": KERNELS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """How weights are updated. A step is one turn of the loop, an update one optimizer step.

    updates_per_step, epochs: a step makes ``updates_per_step * epochs`` updates. Where that is 1, the
        ratio is 1 but in carried groups: clip bounds, sequence ratios and soft gates can hardly act.
    learning_rate, weight_decay, betas: of AdamW; decay touches matrices only, not norms or biases.
    schedule: the rate after warm-up: "constant", or "linear" or "cosine" down to 0 at the run's end.
    warmup_updates: updates over which the rate rises linearly from 0; skipped updates do not count.
    max_grad_norm: the gradient is scaled down to this norm; policy and critic each by their own.
    tokens_per_micro_batch: padded tokens, prompts included, that go through the model at once. Changes
        speed and memory, never the gradient.
    old_logprobs: where the ratio's denominator comes from. "sampler" takes the sampler's own
        log-probabilities (for a carried group: those of the policy that sampled it), "recompute" runs
        the model once more before the first update; "auto" is "sampler" where the sampler computes the
        same weights in float32, else "recompute", but for a step's only update, whose own pass is
        that very one.
    skip_silent: leave out of forward and backward what has exactly no gradient: answers with no trained
        token and, where the policy term is the only one, answers whose advantages are all 0. Their
        tokens then have NaN in the trace.
    max_nonfinite_skips: updates in a row that may be skipped for a loss or gradient that is not finite;
        the next one stops the run. 0 stops at the first.
    gradient_checkpointing: keep only each layer's input and compute the layer again for its gradient:
        a third slower, memory of one layer instead of all.
    share_prompts: compute the prompt of a group once in an update, for answers that stand in one row;
        "auto" where it costs less, "never" gives each answer a row of its own. Changes the gradient by
        rounding only.
    fast: "auto" packs tokens without padding and computes a decoder of the Llama kind by trimtab's own
        passes, on a CPU and where they agree with transformers when tried; every prompt of a micro-batch is
        then computed once. That is so where the model is not tiny; "always" does it for a tiny one too.
        "never" runs transformers' own modules. Changes log-probabilities and gradient by rounding only.
    kernels: "cut-cross-entropy" takes log-probabilities from that library's fused kernel, on GPUs and in
        bfloat16. It knows no entropy: there is no ``policy/entropy`` then, an algorithm that needs it is
        refused, and so is ``record.tokens`` above 0.
    autocast: compute in bfloat16; weights, log-softmax, ratios and sums stay float32.
    critic: "head" is a linear layer on the policy's own states, "model" a copy of the start model with
        such a layer. Only algorithms that need values have a critic at all.
    critic_learning_rate: of the critic's own weights; it follows the same schedule.
    critic_warmup_updates: first updates that train the critic alone, because advantages from an
        untrained critic are noise. They are seen in the report and do not advance the schedule.
    critic_detached: whether a "head" leaves the policy's own weights alone. If not, the value loss
        also shapes them.
    """

    updates_per_step: int = 1
    epochs: int = 1
    learning_rate: float = 1e-6
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_updates: int = 0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    tokens_per_micro_batch: int = 2048
    old_logprobs: Literal["auto", "sampler", "recompute"] = "auto"
    skip_silent: bool = False
    max_nonfinite_skips: int = 0
    gradient_checkpointing: bool = False
    share_prompts: Literal["auto", "never"] = "auto"
    fast: Literal["auto", "always", "never"] = "auto"
    kernels: Literal["none", "cut-cross-entropy"] = "none"
    autocast: bool = False
    critic: Literal["head", "model"] = "head"
    critic_learning_rate: float = 1e-5
    critic_warmup_updates: int = 10
    critic_detached: bool = False

    def __post_init__(self) -> None:
        for name in ("updates_per_step", "epochs", "tokens_per_micro_batch"):
            self._at_least(name, 1)
        for name in ("warmup_updates", "max_nonfinite_skips", "critic_warmup_updates"):
            self._at_least(name, 0)
        for name in ("learning_rate", "critic_learning_rate", "weight_decay"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number >= 0.0):
                raise SettingError(f"trainer.{name} must be a number >= 0, got {number}")
        if not self.max_grad_norm > 0.0:
            raise SettingError(
                f"trainer.max_grad_norm must be > 0, got {self.max_grad_norm}; inf leaves gradients whole"
            )
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise SettingError(f"trainer.betas must both be in [0, 1), got {self.betas}")
        for name, known in WORDS.items():
            if getattr(self, name) not in known:
                value = getattr(self, name)
                raise SettingError(f"trainer.{name}: unknown value {value!r}{nearest(str(value), known)}")

    def _at_least(self, name: str, smallest: int) -> None:
        if getattr(self, name) < smallest:
            raise SettingError(f"trainer.{name} must be >= {smallest}, got {getattr(self, name)}")

    def rate_factor(self, done: int, total: int | None) -> float:
        """What the learning rates are multiplied by after ``done`` updates of ``total``; in [0, 1]."""
        if done < self.warmup_updates:
            return (done + 1) / self.warmup_updates
        if self.schedule == "constant" or total is None:
            return 1.0
        share = (done - self.warmup_updates) / max(1, total - self.warmup_updates)
        left = 1.0 - min(share, 1.0)
        return left if self.schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))
