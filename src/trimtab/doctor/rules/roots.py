"""Causes that can lie behind any decline: each has a test of its own, so that only what fits is named."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.causes import lengths as length_causes
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.causes import rewards, sampling, updates
from trimtab.doctor.suspicion import Suspect

FAULTS: tuple[Suspect, ...] = (
    token_causes.eos_masked,
    updates.wrong_kl_sign,
    token_causes.clip_removed,
    length_causes.reward_pays_length,
    length_causes.overlong_penalty_too_strong,
    updates.learning_rate_too_high,
    sampling.weights_never_synced,
    sampling.stale_sampler,
    sampling.temperature_mismatch,
    sampling.retokenized,
    sampling.double_bos,
    token_causes.old_logprobs_recomputed,
    token_causes.micro_batch_mean,
    rewards.grader_faults,
)
