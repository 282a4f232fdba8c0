"""Every rule, in the order in which they are told. A rule: ``Case`` -> ``Finding``, pure, never raising."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

from trimtab.doctor.case import Case
from trimtab.doctor.rules import entropy, grading, lengths, optimizer, pace, progress, region, signal, tokens
from trimtab.record.findings import Finding

Rule = Callable[[Case], Finding]

RULES: tuple[Rule, ...] = (
    optimizer.not_finite,
    tokens.untrained_ends,
    tokens.doubled_start_token,
    tokens.sampler_mismatch,
    tokens.old_logprobs,
    tokens.loss_weights,
    grading.constant_reward,
    grading.denied_answers,
    grading.grader_faults,
    grading.dead_part,
    grading.gold_answers,
    signal.repeating_prompts,
    region.clip_missing,
    region.never_clipped,
    region.gspo_clip,
    region.sapo_gates,
    region.large_updates,
    lengths.truncation,
    lengths.length_penalty,
    lengths.length_rewarded,
    lengths.length_growth,
    lengths.length_collapse,
    progress.reference_drift,
    optimizer.critic,
    progress.outcome_falls,
    progress.held_out_falls,
    entropy.entropy_collapse,
    entropy.entropy_explosion,
    signal.uniform_groups,
    signal.few_useful_groups,
    signal.loss_near_zero,
    signal.duplicate_rollouts,
    optimizer.gradient_spikes,
    optimizer.skipped_updates,
    progress.coverage,
    pace.standing_still,
)
"""What names a cause directly comes before what shows its consequences."""
