"""Causes in what an update does with each token: clip, gate, ratio, mask and weight."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.evidence.losses import loss_gap
from trimtab.doctor.evidence.training import Moved, ends, moved, outside_box, uneven_updates
from trimtab.doctor.suspicion import (
    CLEARED,
    LIKELY,
    SHOWN,
    UNTESTED,
    Suspicion,
    plain,
    set_to,
    share,
    suspicion,
)

MOVES = 1e-4
"""Nats: below, two log-probabilities are the same; above, the policy has moved."""

SHUT_WIDTH = 0.1
"""A gate that is half shut at a ratio this far from 1 is sharper than any hard clip in use is wide."""


def clip_removed(case: Case) -> Suspicion:
    """By recorded tokens outside the box: do they lose their gate?"""
    setup = case.setup
    change = "restore the clip: algorithm.clip_low = 0.2, algorithm.clip_high = 0.28"
    what = "nothing cuts tokens whose ratio has left the box, so old data keeps pushing"
    if setup.updates_per_step == 1:
        score, seen = CLEARED, "one update a step: nothing to clip"
    elif setup.parts is not None and not setup.bounded:
        score, seen = SHOWN, "the run's own settings bound nothing, and it makes several updates a step"
    elif setup.box is None:
        score, seen = CLEARED, "this algorithm has no box"
    else:
        tokens = outside_box(case)
        free = [one for one in tokens if one.gate != 0.0]
        damped = setup.sequence_ratio
        if len(free) >= 2 and len(free) > 0.5 * len(tokens) and not damped:
            score = SHOWN
            seen = f"{len(free)} of {len(tokens)} recorded tokens outside the box still have a gate above 0"
        elif tokens:
            score, seen = CLEARED, f"all but {len(free)} of {len(tokens)} recorded tokens outside are cut"
        else:
            score, seen = _removed_nothing(case)
    return suspicion(
        score, "clip-removed", what, test=f"do tokens outside the box lose their gate? {seen}", change=change
    )


def _removed_nothing(case: Case) -> tuple[float, str]:
    """From metrics alone: ratios beyond both bounds in many steps, and never a token removed."""
    removed, low, high = (
        case.series(key).values for key in ("clip/removed", "ratio/token_min", "ratio/token_max")
    )
    if case.setup.box is None or not len(removed) or len(low) != len(removed) or case.setup.sequence_ratio:
        return UNTESTED, "no recorded token lies outside"
    beyond = (low < 1 - case.setup.box[0] - 1e-3) | (high > 1 + case.setup.box[1] + 1e-3)
    if beyond.sum() >= 6 and not removed[beyond].any():
        return 0.8, f"in {int(beyond.sum())} steps some ratio left the box and nothing was ever removed"
    return CLEARED if removed.any() else UNTESTED, "no recorded token lies outside"


def gspo_clip_too_wide(case: Case) -> Suspicion:
    """By the bounds of a sequence ratio, and whether they ever cut."""
    setup = case.setup
    removed = case.course("clip/removed")
    wide = setup.sequence_ratio and setup.box is not None and max(setup.box) > 0.02
    idle = removed is None or removed.now <= 1e-3
    if not wide or setup.box is None:
        score, seen = CLEARED, "the bounds are not those of a token clip on a sequence ratio"
    else:
        score = SHOWN if idle else LIKELY
        seen = (
            f"bounds {plain(setup.box[0])} / {plain(setup.box[1])}, {share(case.now('clip/removed'))} removed"
        )
    return suspicion(
        score,
        "gspo-clip-too-wide",
        "a sequence ratio stays within hundredths of 1, so a token clip's range never acts on it",
        test=f"GSPO's own range is 3e-4 / 4e-4: {seen}",
        change="algorithm.clip_low = 3e-4, algorithm.clip_high = 4e-4",
    )


def sapo_temperature_too_large(case: Case) -> Suspicion:
    """By the ratio at which the gate is half shut."""
    gate = case.setup.gate
    tau = max(gate.tau_pos, gate.tau_neg) if gate else 0.0
    width = 1.763 / tau if tau else 1.0
    score, seen = CLEARED, "the gate is not sharp"
    if gate is not None and width < SHUT_WIDTH:
        score = SHOWN if case.now("gate/mass", 1.0) < 0.99 or case.now("clip/removed") > 0 else LIKELY
        seen = f"with tau {plain(tau)} the gate is half shut at a ratio of 1 +- {width:.2g}"
    return suspicion(
        score,
        "sapo-temperature-too-large",
        "a larger tau is a sharper gate: it shuts on ratios that are no cause for worry",
        test=f"half shut at 1 +- 1.763 / tau; a hard clip acts from 0.2 on: {seen}",
        change="algorithm.tau_pos = 1.0, algorithm.tau_neg = 1.05",
    )


def one_update(case: Case) -> Suspicion:
    """By the number of updates a step."""
    updates = case.median("optimizer/updates")
    one = case.setup.updates_per_step == 1 or updates == 1
    return suspicion(
        SHOWN if one else CLEARED,
        "one-update-a-step",
        "one update on fresh answers: every ratio is 1, nothing can be cut",
        test=f"updates a step: {updates:g}",
        change=set_to(case, "trainer.updates_per_step", 4) + ", if the trust region is meant to act",
    )


def old_logprobs_recomputed(case: Case) -> Suspicion:
    """By old log-probabilities or ratios that follow the policy through a step."""
    later, first = moved(case, first=False), moved(case, first=True)
    score, seen = UNTESTED, "no values per token are recorded"
    if later is not None and later.from_sampler > MOVES:
        if later.from_old < 0.05 * later.from_sampler:
            score = SHOWN
            seen = (
                f"at later updates the policy is {later.from_sampler:.2g} nats from what was sampled but "
                f"{later.from_old:.1g} from the recorded old log-probabilities"
            )
        elif _ratio_blind(case, later):
            score = SHOWN
            seen = (
                f"at later updates the policy has moved by {later.from_old:.2g} nats since it sampled, and "
                f"the ratios used are 1 to within {later.by_ratio:.1g}"
            )
        else:
            score, seen = CLEARED, "later updates differ from the recorded old log-probabilities"
    elif later is not None and _ratio_stuck(case):
        score, seen = LIKELY, "the ratio is exactly 1 at every update of a step"
    if first is not None and first.from_sampler < MOVES and first.from_old > 10 * MOVES:
        score = SHOWN
        seen = (
            f"at a step's first update the policy is what was sampled, yet {first.from_old:.2g} nats from "
            "the old log-probabilities: those are of other weights"
        )
    if later is None and first is None and _ratio_stuck(case):
        score, seen = 0.8, "the ratio is exactly 1 at every update of a step"
    return suspicion(
        score,
        "old-logprobs-recomputed",
        "the ratio's denominator is not of the policy that sampled, so the trust region is blind",
        test=f"old log-probabilities stay what they were through all updates of a step: {seen}",
        change="take old log-probabilities once, before the step's first update",
    )


def _ratio_blind(case: Case, later: Moved) -> bool:
    """Whether the ratio that was used says nothing of a move that the log-probabilities show."""
    whole_answers = case.setup.sequence_ratio  # their mean moves by far less than their furthest token
    share_left = 1e-4 if whole_answers else 0.05
    return later.by_ratio is not None and later.by_ratio < share_left * later.from_old


def _ratio_stuck(case: Case) -> bool:
    spread, rate = case.series("ratio/token_std").values, case.now("optimizer/learning_rate")
    return bool(case.median("optimizer/updates") > 1 and rate > 0 and len(spread) > 2 and spread.max() < 1e-6)


def micro_batch_mean(case: Case) -> Suspicion:
    """By the weights of an update against its aggregation, or by a loss that they do not make."""
    judged, uneven = uneven_updates(case)
    score, seen = UNTESTED, "no update's weights are recorded"
    if judged:
        score, seen = CLEARED, f"all {judged} updates read weigh their tokens evenly"
    if judged and len(uneven) > 0.2 * judged:
        worst = max(one.spread for one in uneven)
        score = SHOWN
        seen = f"in {len(uneven)} of {judged} updates equal tokens differ in weight, by up to {share(worst)}"
    gap = loss_gap(case)
    if score < SHOWN and gap is not None and gap.own > max(0.004, 0.6 * gap.usual):
        score = 0.9
        seen = (
            f"the policy loss is off what weights and advantages make by {gap.own:.2g}, where ratios so near "
            f"1 allow some {0.1 * gap.usual:.1g}"
        )
    return suspicion(
        score,
        "micro-batch-mean",
        "each micro-batch is averaged by itself, so a token's weight depends on its neighbours",
        test=f"tokens of an update follow one rule ({case.setup.aggregate or 'aggregation unknown'}): {seen}",
        change="divide by the whole update's tokens (or answers), counted before the first backward pass",
    )


def eos_masked(case: Case) -> Suspicion:
    """By the last token of answers that ended by themselves."""
    found = ends(case)
    if found.stopped < 8:
        score, seen = UNTESTED, "no trained rollouts with an end of their own are recorded"
    else:
        score = SHOWN if found.share > 0.9 else LIKELY if found.share > 0.3 else CLEARED
        seen = f"the last token is untrained in {len(found.untrained)} of {found.stopped} finished answers"
    return suspicion(
        score,
        "eos-masked",
        "the end token has no loss, so the policy never learns when to stop",
        test=f"a sampled end token belongs to the loss: {seen}",
        change="make the loss mask from lengths, the end token included, not from token ids equal to padding",
    )
