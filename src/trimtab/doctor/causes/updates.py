"""Causes in how weights are updated: step size, trust region, terms of the loss, masks and weights."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.suspicion import (
    CLEARED,
    LIKELY,
    SHOWN,
    UNTESTED,
    Suspicion,
    plain,
    rounded,
    set_to,
    suspicion,
)

CALM_KL, LARGE_KL = 0.005, 0.03
"""Nats a token that the updates of one step may move the policy: usual, and clearly too much."""


def learning_rate_too_high(case: Case) -> Suspicion:
    """By how far the updates of one step move the policy."""
    course = case.course("kl/old_k3")
    rate = case.setup.number("trainer.learning_rate")
    spikes = case.course("optimizer/grad_norm")
    growth = 1.0 if spikes is None else spikes.peak / max(spikes.start, 1e-9)
    moved_by = None if course is None else course.peak
    if moved_by is None:
        score, seen = UNTESTED, "kl/old_k3 is not recorded"
    else:
        score = float(
            np.interp(np.log10(max(moved_by, 1e-9)), np.log10([1e-3, CALM_KL, LARGE_KL]), [0.05, 0.4, 0.9])
        )
        seen = f"kl/old_k3 reached {moved_by:.2g} nats a token within a step, {CALM_KL} and less is usual"
    if growth > 10.0:
        score, seen = max(score, 0.5), f"{seen}; the gradient norm grew {growth:.0f}-fold"
    lower = None if rate is None else rounded(rate * _slower(moved_by))
    change = (
        "lower the learning rate three- to tenfold"
        if lower is None
        else set_to(case, "trainer.learning_rate", lower)
    )
    return suspicion(
        score,
        "learning-rate-too-high",
        "each update moves the policy further than its data can vouch for",
        test=f"the updates of one step move the policy by little when the rate is right: {seen}",
        change=change,
    )


def _slower(moved_by: float | None) -> float:
    """Factor on the rate: the KL of a step grows with the square of the rate."""
    if moved_by is None or moved_by <= CALM_KL:
        return 1 / 3
    return float(np.clip(np.sqrt(CALM_KL / 3 / moved_by), 1 / 30, 1 / 3))


def wrong_kl_sign(case: Case) -> Suspicion:
    """By the sign of the KL term's share of the loss."""
    share_of_loss, coefficient = case.course("loss/kl"), case.course("coefficient/kl")
    drift = case.course("kl/reference_k3")
    kl = case.setup.parts.kl if case.setup.parts else None
    never_negative = kl is None or kl[1].estimator in ("k2", "k3")
    score, seen = 0.1, "the loss's KL term is not recorded"
    if coefficient is not None and coefficient.now < 0:
        score, seen = SHOWN, f"coefficient/kl is {coefficient.now:.3g}, below 0"
    elif share_of_loss is not None and never_negative:
        if share_of_loss.now < -1e-9:
            score, seen = SHOWN, f"loss/kl is {share_of_loss.now:.3g}, and this estimator is never below 0"
        else:
            score, seen = CLEARED, f"loss/kl is {share_of_loss.now:.3g}, as it should be"
    elif share_of_loss is None and drift is None:
        score, seen = CLEARED, "this run has no KL to a reference"
    return suspicion(
        score,
        "wrong-kl-sign",
        "the KL term pays for leaving the reference instead of charging for it",
        test=f"a KL term of the loss grows with the KL: {seen}",
        change="add the KL with a positive coefficient to what is minimised (algorithm.terms.kl.coef > 0)",
    )


def kl_too_weak(case: Case) -> Suspicion:
    """By whether there is a KL term at all; it cannot be told from the record alone."""
    kl = case.setup.parts.kl if case.setup.parts else None
    if kl is None:
        return suspicion(
            UNTESTED + 0.1,
            "no-kl-term",
            "nothing holds the policy to where it started",
            test="the same run with a KL term drifts less",
            change='algorithm.terms.kl = { coef = 0.02, estimator = "k3" }',
        )
    return suspicion(
        UNTESTED + 0.1,
        "kl-coefficient-too-small",
        f"a coefficient of {plain(kl[0])} is too little against the rewards",
        test="loss/kl stays small against loss/policy while kl/reference_k3 grows",
        change=f"algorithm.terms.kl.coef = {plain(rounded(3 * kl[0]))} (now {plain(kl[0])})",
    )


def critic_frozen(case: Case) -> Suspicion:
    """By whether values follow their returns."""
    value, target = case.course("value/mean"), case.course("value/return")
    rate = case.setup.number("trainer.critic_learning_rate")
    score, seen = UNTESTED, "value/mean or value/return is not recorded"
    if value is not None and target is not None:
        gap = abs(target.now - value.now)
        travelled = abs(value.now - value.start)
        needed = max(abs(target.now - value.start), 1e-6)
        score = (
            SHOWN if travelled < 0.05 * needed and gap > 0.05 else LIKELY if gap > 0.5 * needed else CLEARED
        )
        seen = f"value/mean went from {value.start:.3g} to {value.now:.3g}, returns are {target.now:.3g}"
    if rate == 0.0:
        score, seen = SHOWN, "trainer.critic_learning_rate is 0"
    return suspicion(
        score,
        "critic-frozen",
        "the critic does not move, so the advantages have no baseline",
        test=f"a critic that trains follows its returns: {seen}",
        change=set_to(case, "trainer.critic_learning_rate", 1e-3 if not rate else rounded(10 * rate)),
    )


def critic_too_slow(case: Case) -> Suspicion:
    """The milder reading of a critic that stays behind."""
    rate = case.setup.number("trainer.critic_learning_rate") or 1e-5
    return suspicion(
        UNTESTED + 0.1,
        "critic-learning-rate-too-low",
        "the critic follows its returns too slowly",
        test="value/mean approaches value/return, but over many tens of steps",
        change=set_to(case, "trainer.critic_learning_rate", rounded(10 * rate)),
    )


def entropy_bonus_too_large(case: Case) -> Suspicion:
    """By the bonus' coefficient."""
    coefficient = case.course("coefficient/entropy")
    on = coefficient is not None and coefficient.now > 0
    return suspicion(
        LIKELY if on else CLEARED,
        "entropy-bonus-too-large",
        "the entropy bonus outweighs the rewards",
        test=f"coefficient/entropy is {coefficient.now:.3g}" if coefficient else "there is no entropy bonus",
        change="algorithm.terms.entropy.coef three times smaller, or an entropy target instead",
    )
