"""The machine: gradients, skipped updates, what is not finite, and the critic."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.causes import updates
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.rules import progress
from trimtab.doctor.suspicion import Suspicion, blame, share, suspicion
from trimtab.doctor.verdicts import FEW, absent, clear, facts, found, skipped, too_short
from trimtab.record.findings import Evidence, Finding, Severity

SPIKE = 10.0
STEPS = 12


def gradient_spikes(case: Case) -> Finding:
    """Symptom 12: gradients far above their median, more than once."""
    rule, key = "gradient-spikes", "optimizer/grad_norm_max"
    key = key if case.has(key) else "optimizer/grad_norm"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    values = case.series(key).values
    if len(values) < STEPS:
        return too_short(case, rule, STEPS)
    level = float(np.median(values))
    spikes = np.flatnonzero(values > SPIKE * max(level, 1e-9))
    course = case.course(key)
    assert course is not None
    grown = course.start > 0 and course.now > SPIKE * course.start
    often = len(spikes) >= max(3, 0.04 * len(values))
    if not often and not grown:
        most = values.max() / max(level, 1e-9)
        return clear(case, rule, f"gradients stay within {most:.1f} times their median, but for few steps")
    hurts = grown or case.now("kl/old_k3") > updates.CALM_KL or progress.lost(case)
    steps = case.series(key).steps
    where = "growing" if grown else f"{len(spikes)} steps with more than {SPIKE:g} times the median"
    return found(
        case,
        rule,
        Severity.WARNING if hurts else Severity.NOTE,
        f"the gradient norm is unsteady: {where}",
        confidence=0.7,
        evidence=(
            Evidence(
                text=f"{key} has a median of {level:.3g} and reached {values.max():.3g}",
                key=key,
                value=float(values.max()),
                baseline=level,
                steps=(int(steps[spikes[0]]), int(steps[spikes[-1]])) if len(spikes) else None,
            ),
            *facts(case, "kl/old_k3", "ratio/token_max"),
        ),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(
            case,
            (
                updates.wrong_kl_sign,
                token_causes.clip_removed,
                updates.learning_rate_too_high,
                norm_unbounded,
            ),
        ),
        source="against the run's own median; gradient clipping hides a spike, it does not heal it",
    )


def norm_unbounded(case: Case) -> Suspicion:
    """A clip on the norm that is far above the usual norm does nothing."""
    limit = case.setup.number("trainer.max_grad_norm")
    usual = case.median("optimizer/grad_norm")
    idle = limit is None or limit > 20 * usual
    return suspicion(
        0.3 if idle else 0.05,
        "gradient-clip-too-wide",
        "the bound on the gradient norm is far above what is usual here",
        test=f"the usual norm is {usual:.2g}",
        change=f"trainer.max_grad_norm = {max(3 * usual, 1e-3):.2g}",
    )


def not_finite(case: Case) -> Finding:
    """Symptom 12: a NaN or an infinity, in metrics or as the reason of a skip or a stop."""
    rule = "not-finite"
    if not len(case.history):
        return skipped(case, rule, "metrics")
    bad = {step: names for step in case.history.times.steps.tolist() if (names := case.history.missing(step))}
    said = [
        event
        for event in case.events
        if event.get("event") in ("update_skipped", "stopped")
        and any(word in str(event.get("reason", "")).lower() for word in ("finite", "nan", "infinit"))
    ]
    if not bad and not said:
        return clear(case, rule, "every number is finite")
    keys = sorted({key for names in bad.values() for key in names})
    evidence = (
        [
            Evidence(
                text=f"{', '.join(keys[:6])} met a NaN or an infinity",
                key=keys[0],
                steps=(min(bad), max(bad)),
            )
        ]
        if bad
        else []
    )
    evidence += [Evidence(text=str(event["reason"])[:200], key="optimizer/skipped") for event in said[:2]]
    return found(
        case,
        rule,
        Severity.CRITICAL if said or len(bad) > 1 else Severity.WARNING,
        f"numbers that are not finite, first at step {min(bad)}" if bad else "an update was not finite",
        confidence=0.97,
        evidence=evidence,
        exhibits=exhibits.far_tokens(case),
        suspects=blame(
            case, (updates.wrong_kl_sign, token_causes.clip_removed, updates.learning_rate_too_high)
        ),
        source="a NaN never heals by itself",
    )


def skipped_updates(case: Case) -> Finding:
    """Symptom 12: updates that were not made."""
    rule, key = "updates-skipped", "optimizer/skipped"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    missed, made = case.series(key).values, case.series("optimizer/updates").values
    total = float(missed.sum() + made.sum())
    part = float(missed.sum()) / total if total else 0.0
    reasons = [str(event.get("reason", "")) for event in case.counted("update_skipped")]
    silent = bool(reasons) and all("exactly zero" in reason for reason in reasons)
    if len(missed) < FEW or part < (0.6 if silent else 0.2):
        why = ", all of uniform groups, which is normal" if silent else ""
        return clear(case, rule, f"{int(missed.sum())} updates were skipped{why}")
    from trimtab.doctor.rules.signal import CAUSES

    return found(
        case,
        rule,
        Severity.CRITICAL if part > 0.8 else Severity.WARNING,
        f"{share(part)} of the updates were skipped" + (f": {reasons[-1]}" if reasons else ""),
        confidence=0.9,
        evidence=facts(case, key, "optimizer/updates", "groups/uniform"),
        suspects=blame(case, CAUSES),
        source="events.jsonl, update_skipped",
    )


def critic(case: Case) -> Finding:
    """Symptom 12: the value function does not learn."""
    rule, key = "critic-not-learning", "value/explained_variance"
    if case.setup.parts is not None and not case.setup.has_critic:
        return absent(case, rule, "no critic")
    if missing := case.missing(key, "value/mean", "value/return"):
        return skipped(case, rule, *missing)
    value, target, explained = (case.course(k) for k in ("value/mean", "value/return", key))
    assert value is not None
    assert target is not None
    assert explained is not None
    warm = int(case.setup.number("trainer.critic_warmup_updates") or 0)
    first = warm // max(1, case.setup.updates_per_step or 1) + 6
    if value.count < max(first, 8):
        return too_short(case, rule, max(first, 8))
    gap, way = abs(target.now - value.now), abs(value.now - value.start)
    frozen = way < 0.1 * max(abs(target.now - value.start), 1e-9) and gap > 0.05
    behind = gap > 0.3 * max(abs(target.now), 0.1) and explained.now < 0.05
    wild = explained.now < -1.0
    if not (frozen or behind or wild):
        title = f"the critic follows: it expects {value.now:.2f}, {target.now:.2f} came"
        return clear(case, rule, title, *facts(case, key, "value/mean", "value/return"))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"the critic does not learn: it expects {value.now:.2g} where {target.now:.2g} comes",
        confidence=0.9 if frozen else 0.7,
        evidence=facts(case, key, "value/mean", "value/return", "loss/value", "optimizer/critic_grad_norm"),
        suspects=blame(case, (updates.critic_frozen, updates.critic_too_slow)),
        source="explained variance = 1 - Var(R - V) / Var(R), and the bias of V",
    )
