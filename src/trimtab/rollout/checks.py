"""Self-checks of the first step: do sampler and trainer speak of the same policy?

Pure functions on what both sides computed. Each returns a CheckResult whose sentence can be printed as
it is. Log-probabilities are [T], of the same sampled tokens in the same order, at the sampling
temperature; nothing of the weights may have changed between the two sides.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import RunError
from trimtab.types import Rollout

RATIO_LIMIT = 1e-4
BATCH_LIMIT = 1e-5
FINE_DIFFERENCE = 0.005
TROUBLE_DIFFERENCE = 0.01
MAX_LOG_RATIO = 80.0

SUSPECTS = (
    "the temperature is missing on one side, dropout is on in the trainer, the two sides hold different "
    "weights or dtypes, positions or masks of padded rows differ, or end tokens are counted differently"
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: passed when ``value`` <= ``limit``. The sentence says what was seen and what to do."""

    name: str
    value: float
    limit: float
    passed: bool
    sentence: str

    def require(self) -> CheckResult:
        """Itself when passed. Raises: RunError with the sentence when not."""
        if not self.passed:
            raise RunError(self.sentence)
        return self


def check_ratio(sampler_T: ArrayLike, trainer_T: ArrayLike, *, dtype: torch.dtype) -> CheckResult:
    """Sampler and trainer agree on the tokens just sampled, before any update.

    float32: max |exp(trainer - sampler) - 1| <= 1e-4.
    less precise dtypes: mean |exp(trainer) - exp(sampler)| <= 0.01; below 0.005 is fine, between them
    is worth a look.
    """
    return _compare("ratio is 1 before the first update", sampler_T, trainer_T, dtype, SUSPECTS)


def check_weights_arrived(sampler_T: ArrayLike, trainer_T: ArrayLike, *, dtype: torch.dtype) -> CheckResult:
    """After a sync the engine samples from the trainer's new weights: the same comparison, sampled anew."""
    reason = (
        "the engine still samples from older weights or kept a cache of theirs, or only a part of them "
        "(a tied output layer, an adapter) was delivered"
    )
    return _compare("engine follows the trainer's weights", sampler_T, trainer_T, dtype, reason)


def check_fingerprints(before: str, trainer: str, engine: str) -> CheckResult:
    """The engine's weights are the trainer's, and they are not those from before the update.

    Give fingerprints of the same dtype (see ``local.fingerprint``). ``value`` counts what is wrong.
    """
    differs, unchanged = trainer != engine, trainer == before
    if differs:
        sentence = (
            f"the engine's weights ({engine}) are not the trainer's ({trainer}); check what is synchronised"
        )
    elif unchanged:
        sentence = (
            f"the update left every weight as it was ({trainer}); check the learning rate and frozen layers"
        )
    else:
        sentence = f"the update changed the weights ({before} to {trainer}) and the engine has them"
    value = float(differs) + float(unchanged)
    return CheckResult("weights were updated and delivered", value, 0.0, value == 0.0, sentence)


def check_alone(alone: Rollout, together: Rollout, *, dtype: torch.dtype) -> CheckResult:
    """The same rollout, sampled alone and in a batch, has the same tokens and log-probabilities.

    float32: the same tokens, and log-probabilities within 1e-5. In less precise dtypes rounding may
    lead to other tokens; the shared beginning is compared against the band of ``check_ratio``.
    """
    name = "a rollout is the same alone and in a batch"
    if alone.seed != together.seed:
        raise ValueError(f"{alone.key} and {together.key} have different seeds, so they cannot be compared")
    same = _shared_beginning(alone.token_ids, together.token_ids)
    if dtype is not torch.float32:
        reason = "padding, positions or masks of batched rows differ from those of a single one"
        return _compare(name, alone.logprobs[:same], together.logprobs[:same], dtype, reason)
    difference = np.abs(_float64(alone.logprobs[:same]) - _float64(together.logprobs[:same]))
    value = float(difference.max(initial=0.0))
    complete = same == len(alone.token_ids) == len(together.token_ids)
    if not complete:
        sentence = f"rollout {alone.key} differs from token {same} on when it is sampled alone"
    elif not value <= BATCH_LIMIT:
        sentence = f"log-probabilities of rollout {alone.key} differ by {value:.1e} when it is sampled alone"
    else:
        return CheckResult(name, value, BATCH_LIMIT, True, f"{name}: largest difference {value:.1e}")
    advice = "the model mixes rows of a batch, or padding, positions and masks are wrong for it"
    return CheckResult(name, value if complete else float("inf"), BATCH_LIMIT, False, f"{sentence}; {advice}")


def _compare(
    name: str, sampler_T: ArrayLike, trainer_T: ArrayLike, dtype: torch.dtype, reason: str
) -> CheckResult:
    sampler, trainer = _float64(sampler_T), _float64(trainer_T)
    if sampler.shape != trainer.shape or sampler.ndim != 1:
        raise ValueError(f"{name}: log-probabilities of shapes {sampler.shape} and {trainer.shape}")
    if not len(sampler):
        raise ValueError(f"{name}: no token to compare")
    if dtype is torch.float32:
        ratio = np.exp(np.clip(trainer - sampler, -MAX_LOG_RATIO, MAX_LOG_RATIO))
        value, limit, what = float(np.abs(ratio - 1).max()), RATIO_LIMIT, "the largest |ratio - 1|"
    else:
        value, limit = float(np.abs(np.exp(trainer) - np.exp(sampler)).mean()), TROUBLE_DIFFERENCE
        what = "the mean difference in probability"
    passed = value <= limit  # NaN does not pass
    sentence = f"{name}: {what} over {len(sampler)} tokens is {value:.1e} (limit {limit:g})"
    if not passed:
        sentence += f"; likely causes: {reason}"
    elif dtype is not torch.float32 and value > FINE_DIFFERENCE:
        sentence += f", above the {FINE_DIFFERENCE:g} that is fine for this dtype: watch the mismatch metrics"
    return CheckResult(name, value, limit, passed, sentence)


def _shared_beginning(
    one: Sequence[int] | NDArray[np.int64], other: Sequence[int] | NDArray[np.int64]
) -> int:
    """How many tokens the two have in common before they part."""
    shorter = min(len(one), len(other))
    differing = np.nonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))[0]
    return int(differing[0]) if len(differing) else shorter


def _float64(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values, dtype=np.float64)
