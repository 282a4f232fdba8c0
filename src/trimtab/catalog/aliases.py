"""The names that TRL and verl give to the same metrics, in both directions.

    from_trl("completions/clipped_ratio")   -> Alias(key="length/truncated", ...)
    to_verl("kl/old_k1")                    -> Alias(key="actor/ppo_kl", ...)

A name stands here only where both sides count the same thing; ``note`` says how mask or scale differ.
``NOT_THE_SAME`` holds the names that look alike and are not, with the reason.
Source: TRL 1.16, trl/trainer/grpo_trainer.py; verl 0.5 to 0.7, verl/trainer/ppo/metric_utils.py,
rollout_corr_helper.py, core_algos.py. Both write sequence-level metrics of the batch they train on.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from trimtab.catalog.spec import key_pattern

Framework = Literal["trl", "verl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A metric under another name: value there * ``scale`` = value under ``key``.

    key: with the placeholders of the asked key filled in. note: how the two may differ, or empty.
    """

    key: str
    scale: float = 1.0
    note: str = ""

    def of(self, value: float) -> float:
        """The value under ``key``."""
        return value * self.scale


TRAINED_ONLY = "of the batch trained on; equal to ours where nothing is dropped by selection"
ALL_TOKENS = "a share of all trained tokens; ours is a share of those with an advantage"
ONE_LOSS = "one update's or micro-batch's mean; ours joins the step's updates by their tokens"

TRL: dict[str, Alias] = {
    "completions/mean_length": Alias(key="length/mean"),
    "completions/min_length": Alias(key="length/min"),
    "completions/max_length": Alias(key="length/max"),
    "completions/clipped_ratio": Alias(
        key="length/truncated", note="answers whose last token is no end token; ours is the sampler's word"
    ),
    "reward": Alias(key="reward/mean", note="weighted sum of the reward functions, as they are"),
    "reward_std": Alias(key="reward/std", note="with ddof 1; ours has ddof 0"),
    "rewards/{grader}/mean": Alias(
        key="grades/part/{grader}", note="on the function's own scale; ours lies in [0, 1]"
    ),
    "frac_reward_zero_std": Alias(
        key="groups/uniform", note="of the summed reward, by its std; ours of the raw outcome, by max - min"
    ),
    "entropy": Alias(key="policy/entropy", note=ONE_LOSS),
    "entropy_coef": Alias(key="coefficient/entropy"),
    "kl": Alias(
        key="kl/reference_k3", note="times the ratio where use_bias_correction_kl is set; " + ONE_LOSS
    ),
    "clip_ratio/region_mean": Alias(key="clip/removed", note=ALL_TOKENS),
    "clip_ratio/low_mean": Alias(key="clip/low", note=ALL_TOKENS),
    "clip_ratio/high_mean": Alias(key="clip/high", note=ALL_TOKENS),
    "sampling/sampling_logp_difference/mean": Alias(key="mismatch/logprob"),
    "sampling/sampling_logp_difference/max": Alias(key="mismatch/logprob_max"),
    "loss": Alias(key="loss/total"),
    "policy_loss": Alias(key="loss/policy"),
    "grad_norm": Alias(key="optimizer/grad_norm"),
    "learning_rate": Alias(key="optimizer/learning_rate"),
    "step_time": Alias(key="seconds/step", note="of one update; ours of a step with all its updates"),
}

VERL: dict[str, Alias] = {
    "response_length/mean": Alias(key="length/mean", note=TRAINED_ONLY),
    "response_length/min": Alias(key="length/min", note=TRAINED_ONLY),
    "response_length/max": Alias(key="length/max", note=TRAINED_ONLY),
    "response_length/clip_ratio": Alias(
        key="length/truncated", note="answers as long as the limit, those that end exactly there included"
    ),
    "critic/score/mean": Alias(
        key="reward/mean", note=TRAINED_ONLY + "; shaping by the reward manager in it"
    ),
    "critic/advantages/mean": Alias(key="advantage/token"),
    "critic/values/mean": Alias(key="value/mean"),
    "critic/returns/mean": Alias(
        key="value/return", note="without a critic it is the advantage, which ours leaves out"
    ),
    "critic/vf_explained_var": Alias(key="value/explained_variance", note="1e-5 is added to Var(R)"),
    "critic/vf_loss": Alias(key="loss/value", note="without a coefficient"),
    "critic/vf_clipfrac": Alias(key="value/clipped"),
    "critic/grad_norm": Alias(key="optimizer/critic_grad_norm"),
    "actor/entropy": Alias(key="policy/entropy", note="under loss_agg_mode token-mean; " + ONE_LOSS),
    "actor/pg_loss": Alias(key="loss/policy"),
    "actor/kl_loss": Alias(
        key="kl/reference_k3",
        note="for kl_loss_type low_var_kl under token-mean, clamped; without coefficient",
    ),
    "actor/kl_coef": Alias(key="coefficient/kl"),
    "actor/ppo_kl": Alias(key="kl/old_k1", note="KL to the old policy, not to the reference; clamped at 20"),
    "actor/pg_clipfrac": Alias(key="clip/removed", note=ALL_TOKENS + "; without what dual clip cuts"),
    "actor/grad_norm": Alias(key="optimizer/grad_norm"),
    "actor/lr": Alias(key="optimizer/learning_rate"),
    "rollout_corr/kl": Alias(
        key="mismatch/k1", note="KL of the sampler to the trainer, not to the reference; stale answers in it"
    ),
    "rollout_corr/k3_kl": Alias(key="mismatch/k3", note="stale answers in it"),
    "rollout_corr/rollout_is_eff_sample_size": Alias(
        key="mismatch/ess", note="of weights already truncated, so higher than ours; of tokens, or of answers"
    ),
    "training/rollout_probs_diff_mean": Alias(key="mismatch/probability", note="stale answers in it"),
    "training/rollout_probs_diff_max": Alias(key="mismatch/probability_max", note="stale answers in it"),
    "timing_s/step": Alias(key="seconds/step"),
    "timing_s/gen": Alias(key="seconds/sample"),
    "timing_s/reward": Alias(key="seconds/grade"),
    "timing_s/adv": Alias(key="seconds/advantages"),
    "timing_s/update_actor": Alias(key="seconds/update", note="without the critic's update"),
    "perf/max_memory_allocated_gb": Alias(key="memory/device_peak_bytes", scale=2.0**30),
    "val-core/{source}/acc/mean@{k}": Alias(
        key="evaluation/pass@1", note="one of possibly several sources; k answers a prompt"
    ),
    "val-core/{source}/acc/maj@{k}/mean": Alias(
        key="evaluation/maj@{k}", note="one of possibly several sources; from draws with replacement"
    ),
}

ALIASES: dict[Framework, dict[str, Alias]] = {"trl": TRL, "verl": VERL}

NOT_THE_SAME: dict[str, str] = {
    "actor/pg_clipfrac_lower": "the share cut by dual clip, not by the lower bound, over all tokens",
    "critic/rewards/mean": "the score minus the KL penalty of kl_in_reward; critic/score/mean has no penalty",
    "critic/advantages/max": "the largest advantage; advantage/max is the largest magnitude",
    "response/aborted_ratio": "answers of no token; length/aborted counts samplings that were broken off",
    "rollout_corr/rollout_is_mean": "the mean of truncated weights, near 1 whatever the mismatch",
    "val-core/{source}/acc/best@{k}/mean": "from draws with replacement, which is below the unbiased pass@k",
    "cispo_clip_ratio": "weights that were capped and keep their gradient, which clip/removed does not count",
    "sampling/importance_sampling_ratio/mean": "the mean of capped ratios",
    "completions/mean_terminated_length": "over answers that ended; length/mean is over all",
    "num_tokens": "prompt and response tokens since the start; flow/tokens_sampled is one step's response",
}
"""Names of TRL and verl that must not be taken for one of ours, and why."""


def aliases_of(framework: Framework) -> Mapping[str, Alias]:
    """Foreign key (or family with {placeholders}) -> our key. Raises KeyError for another framework."""
    return ALIASES[framework]


def from_trl(key: str) -> Alias | None:
    """Our metric for a name of TRL; None where there is none."""
    return _translate("trl", True, key)


def to_trl(key: str) -> Alias | None:
    """TRL's name of our metric; None where there is none."""
    return _translate("trl", False, key)


def from_verl(key: str) -> Alias | None:
    """Our metric for a name of verl; None where there is none."""
    return _translate("verl", True, key)


def to_verl(key: str) -> Alias | None:
    """verl's name of our metric; None where there is none, or where a word of the name is not known."""
    return _translate("verl", False, key)


def named_in(framework: Framework, key: str) -> Alias | None:
    """As ``to_trl`` and ``to_verl``, for a key of the catalogue with its placeholders as they are."""
    return _table(framework, False).get(key)


def _translate(framework: Framework, inward: bool, key: str) -> Alias | None:
    table = _table(framework, inward)
    if key in table:
        return None if "{" in table[key].key and "{" not in key else table[key]
    for name, alias in table.items():
        if "{" not in name:
            continue
        found = key_pattern(name).fullmatch(key)
        if found is not None:
            filled = alias.key
            for place, word in found.groupdict().items():
                filled = filled.replace("{" + place + "}", word)
            return None if "{" in filled else replace(alias, key=filled)
    return None


@lru_cache
def _table(framework: Framework, inward: bool) -> dict[str, Alias]:
    if inward:
        return ALIASES[framework]
    return {
        alias.key: Alias(key=name, scale=1.0 / alias.scale, note=alias.note)
        for name, alias in ALIASES[framework].items()
    }
