"""Compositions that a recipe is refused, each with a name, the reason, and what to do.

A refusal is an opinion, not a law of nature: ``allow = ["wide-sequence-clip"]`` in the ``[algorithm]`` table
lifts it, and the record keeps that. Code that builds an ``Algorithm`` itself is not second-guessed. What
makes no sense at all (tau <= 0, a buffer as long as the answer) is an error of the piece, not a refusal.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.advantages.gae import GAE
from trimtab.advantages.group import GroupRelative, LeaveOneOut
from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.parts import Parts
from trimtab.errors import SettingError, nearest
from trimtab.objectives.aggregate import prompt_mean, token_mean, token_sum
from trimtab.objectives.ratio import sequence_ratio, sequence_token_ratio
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, SoftGate

WIDEST_SEQUENCE_CLIP = 0.02
"""A sequence ratio stays within hundredths of 1; a bound beyond this never acts."""

FLATTEST_SEQUENCE_GATE = 10.0
"""Below this tau a soft gate still lets 99 % through at a sequence ratio of 1.02."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """``applies(parts, samples_per_prompt)``: is this algorithm meant? ``reason`` ends with the remedy."""

    name: str
    reason: str
    applies: Callable[[Parts, int], bool]


def _by_sequence(parts: Parts) -> bool:
    return parts.ratio in (sequence_ratio, sequence_token_ratio)


def _wide_sequence_clip(parts: Parts, samples: int) -> bool:
    match parts.surrogate:
        case Clip(low, high) | DualClip(low, high) | ClippedWeight(low, high) | SignDecoupledClip(low, high):
            return _by_sequence(parts) and max(low, high) > WIDEST_SEQUENCE_CLIP
        case _:
            return False


def _flat_sequence_gate(parts: Parts, samples: int) -> bool:
    gate = parts.surrogate
    return (
        isinstance(gate, SoftGate)
        and _by_sequence(parts)
        and min(gate.tau_pos, gate.tau_neg) < FLATTEST_SEQUENCE_GATE
    )


def _sequence_token_mean(parts: Parts, samples: int) -> bool:
    # seq-mean-token-sum is left alone: weighting a sequence ratio by length on purpose is LUSPO
    return _by_sequence(parts) and parts.aggregate in (token_mean, prompt_mean, token_sum)


def _token_advantages_sequence_ratio(parts: Parts, samples: int) -> bool:
    return parts.ratio is sequence_ratio and isinstance(parts.advantage, GAE)


def _single_rollout_groups(parts: Parts, samples: int) -> bool:
    return samples < 2 and isinstance(parts.advantage, GroupRelative | LeaveOneOut)


def _single_rollout_selection(parts: Parts, samples: int) -> bool:
    return samples < 2 and parts.selection is not None


def _k1_in_loss(parts: Parts, samples: int) -> bool:
    return parts.kl is not None and parts.kl[1].estimator == "k1" and not parts.kl[1].importance_weighted


def _kl_in_scaled_reward(parts: Parts, samples: int) -> bool:
    scaled = isinstance(parts.advantage, GroupRelative | LeaveOneOut) and parts.advantage.scale == "std"
    return scaled and parts.kl_in_reward is not None


def _untrained_critic(parts: Parts, samples: int) -> bool:
    return isinstance(parts.advantage, GAE) and parts.value is None


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "wide-sequence-clip",
        f"a clip range beyond {WIDEST_SEQUENCE_CLIP:g} on a sequence ratio never acts, because the "
        'geometric mean over an answer stays within hundredths of 1; take 3e-4 / 4e-4, or ratio = "token"',
        _wide_sequence_clip,
    ),
    Refusal(
        "flat-sequence-gate",
        f"a soft gate with tau < {FLATTEST_SEQUENCE_GATE:g} on a sequence ratio lets everything through, "
        'because that ratio stays within hundredths of 1; take ratio = "token" (which is SAPO), or a tau in '
        "the hundreds",
        _flat_sequence_gate,
    ),
    Refusal(
        "sequence-token-mean",
        "a sequence ratio with this aggregate weights every answer by its length, which is not GSPO; "
        'take aggregate = "seq-mean-token-mean"',
        _sequence_token_mean,
    ),
    Refusal(
        "token-advantages-sequence-ratio",
        "GAE gives every token an advantage of its own, but the gradient of a sequence ratio spreads each "
        'over the whole answer; take ratio = "sequence-token"',
        _token_advantages_sequence_ratio,
    ),
    Refusal(
        "single-rollout-groups",
        "with samples_per_prompt = 1 a group baseline has nothing to compare with and every advantage is 0; "
        'raise sampling.samples_per_prompt (8 or more), or take advantage = "gae" with a critic',
        _single_rollout_groups,
    ),
    Refusal(
        "single-rollout-selection",
        "with samples_per_prompt = 1 every group is uniform and dynamic sampling drops them all; "
        'raise sampling.samples_per_prompt, or set selection = "none"',
        _single_rollout_selection,
    ),
    Refusal(
        "k1-in-loss",
        'k1 as a term of the loss has no gradient on average; take estimator = "k2" or "k3", '
        "importance_weighted = true, or kl_in_reward",
        _k1_in_loss,
    ),
    Refusal(
        "kl-in-scaled-reward",
        "a group whose answers differ only by the KL penalty would be blown up to advantages of +-1 by the "
        'division by its std; take advantage.scale = "none", or terms.kl instead of kl_in_reward',
        _kl_in_scaled_reward,
    ),
    Refusal(
        "untrained-critic",
        "GAE reads a critic that nothing trains; add terms.value = {coef = 0.1, clip = 0.2}",
        _untrained_critic,
    ),
)


def refuse(algorithm: Algorithm, *, samples_per_prompt: int, allow: Sequence[str] = ()) -> None:
    """Raises SettingError for the first refusal that applies and is not lifted by ``allow``.

    Also for a name in ``allow`` that is unknown or lifts nothing, and for a value loss without returns.
    """
    names = [refusal.name for refusal in REFUSALS]
    for name in allow:
        if name not in names:
            raise SettingError(f"algorithm.allow names an unknown refusal {name!r}{nearest(name, names)}")
    parts = Parts.of(algorithm)
    if parts.value is not None and not isinstance(parts.advantage, GAE):
        raise SettingError(
            "algorithm.terms.value trains a critic towards returns that only GAE makes; "
            'take advantage = "gae" or leave the term out'
        )
    for refusal in REFUSALS:
        applies = refusal.applies(parts, samples_per_prompt)
        if applies and refusal.name not in allow:
            raise SettingError(f'{refusal.reason}; algorithm.allow = ["{refusal.name}"] lifts this refusal')
        if refusal.name in allow and not applies:
            raise SettingError(
                f"algorithm.allow lifts {refusal.name!r}, which this recipe does not run into; leave it out"
            )
