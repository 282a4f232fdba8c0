"""Self-checks of the first step: do sampler and trainer speak of the same policy?

Pure functions on what both sides computed. Each returns a CheckResult whose sentence can be printed as
it is. Log-probabilities are [T], of the same sampled tokens in the same order, at the sampling
temperature; nothing of the weights may have changed between the two sides.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import RunError
from trimtab.types import Rollout, WeightSource

RATIO_LIMIT = 1e-4
BATCH_LIMIT = 1e-4
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


def check_weights_changed(before: str, after: str) -> CheckResult:
    """The weights published after an update are not those from before it: two fingerprints differ.

    Holds in float32 only: in bfloat16 a small update can leave every published weight as it was.
    ``value`` is 1 where they are equal.
    """
    name, same = "an update changes the published weights", before == after
    if same:
        sentence = f"{name}: they are as before ({after}); check the learning rate and frozen layers"
    else:
        sentence = f"{name}: their fingerprint was {before} and is {after}"
    return CheckResult(name, float(same), 0.0, not same, sentence)


def fingerprint(weights: WeightSource) -> str:
    """A hash of up to 64 evenly spaced values of every tensor: 16 hex digits, cheap at any size.

    Any optimizer step changes it; the same weights in the same dtype give the same one.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in weights:
        flat = tensor.detach().reshape(-1)
        picked = flat[:: max(1, flat.numel() // 64)][:64].to("cpu", torch.float32)
        digest.update(name.encode() + str(tuple(tensor.shape)).encode() + picked.numpy().tobytes())
    return digest.hexdigest()


def check_alone(pairs: Sequence[tuple[Rollout, Rollout]], *, dtype: torch.dtype) -> CheckResult:
    """Rollouts sampled alone and the same ones sampled in a batch: the same tokens and log-probabilities.

    float32: log-probabilities within 1e-4 (rounding grows with the model, a tiny one stays below 1e-5) over
    the tokens that both have; rounding may, rarely, lead one of four rollouts to another token, not more.
    In less precise dtypes the shared beginnings are compared against the band of ``check_ratio``.
    """
    name = "a rollout is the same alone and in a batch"
    for alone, together in pairs:
        if alone.seed != together.seed:
            raise ValueError(
                f"{alone.key} and {together.key} have different seeds, so they cannot be compared"
            )
    shared = [_shared_beginning(alone.token_ids, together.token_ids) for alone, together in pairs]
    alone_T, together_T = (
        np.concatenate(
            [_float64(pair[side].logprobs[:same]) for pair, same in zip(pairs, shared, strict=True)]
        )
        for side in (0, 1)
    )
    if dtype is not torch.float32 and len(alone_T):
        reason = "padding, positions or masks of batched rows differ from those of a single one"
        return _compare(name, alone_T, together_T, dtype, reason)
    value = float(np.abs(alone_T - together_T).max(initial=0.0))
    parted = [
        f"{alone.key} from token {same} on"
        for (alone, together), same in zip(pairs, shared, strict=True)
        if not same == len(alone.token_ids) == len(together.token_ids)
    ]
    too_many = len(parted) > len(pairs) // 4
    sentence = f"{name}: largest difference {value:.1e} over {len(alone_T)} tokens of {len(pairs)} rollouts"
    if too_many:
        sentence = f"sampled alone, {len(parted)} of {len(pairs)} rollouts differ: {', '.join(parted)}"
    elif not value <= BATCH_LIMIT:
        sentence = f"log-probabilities differ by {value:.1e} when rollouts are sampled alone"
    passed = value <= BATCH_LIMIT and not too_many
    if not passed:
        sentence += "; the model mixes rows of a batch, or padding, positions and masks are wrong for it"
    return CheckResult(name, float("inf") if too_many else value, BATCH_LIMIT, passed, sentence)


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
