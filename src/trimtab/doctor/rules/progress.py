"""Does it get better, and at what: drift from the reference, held-out against training, coverage."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.causes import groups as group_causes
from trimtab.doctor.causes import lengths as length_causes
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.causes import rewards, updates
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.rules.roots import FAULTS
from trimtab.doctor.suspicion import Suspicion, blame, share, suspicion
from trimtab.doctor.verdicts import FEW, clear, fact, facts, followed, found, skipped, too_short
from trimtab.record.findings import Evidence, Finding, Severity

STEPS = 8
DRIFT = 0.15
"""Nats a token from the reference that are much for any run; more where its answers began undecided."""


def reference_drift(case: Case) -> Finding:
    """Symptom 1: the policy leaves the reference fast."""
    rule, key = "reference-drift", "kl/reference_k3"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    entropy = case.course("policy/entropy")
    room = DRIFT if entropy is None else max(DRIFT, 1.5 * entropy.start)
    signed = updates.wrong_kl_sign(case).score > 0.9
    passed = case.course("pass/at_1")
    better = passed is not None and passed.rises and passed.now > passed.start + 0.1
    if better and length_causes.reward_pays_length(case).score < 0.5:
        room *= 3  # what is learned shows as distance too
    if not signed and (course.now < room or not course.rises):
        title = f"{course.now:.2g} nats a token from the reference, {room:.2g} would be much"
        return clear(case, rule, title, fact(case, key))
    rewarded = case.course("reward/outcome") or case.course("reward/mean")
    rising = rewarded is not None and rewarded.rises
    severe = course.now > 4 * room and not better
    return found(
        case,
        rule,
        Severity.CRITICAL if severe else Severity.WARNING,
        f"the policy is {course.now:.2g} nats a token from the reference"
        + (" while the reward rises: drift or a hacked reward" if rising else ""),
        confidence=0.9 if severe or signed else 0.7,
        evidence=facts(case, key, "loss/kl", "reward/outcome", "pass/at_1", "length/mean", "policy/entropy"),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(
            case,
            (
                updates.wrong_kl_sign,
                length_causes.reward_pays_length,
                token_causes.clip_removed,
                updates.learning_rate_too_high,
                updates.kl_too_weak,
            ),
        ),
        source="k3 of the reference, against the entropy the run began with",
    )


def outcome_falls(case: Case) -> Finding:
    """Symptoms 1, 6 and 12: the policy gets worse at its own task."""
    rule = "outcome-falls"
    key = "pass/at_1" if case.has("pass/at_1") else "reward/outcome"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    drop = course.peak - course.now
    lasting = drop > max(0.1, 3 * course.spread) and course.now < 0.75 * course.peak
    below_start = course.now < course.start - max(0.05, course.spread)
    if not lasting or not (below_start or drop > 0.25):
        return clear(
            case, rule, f"{key} {course.start:.2f} at the start, {course.now:.2f} now", fact(case, key)
        )
    return found(
        case,
        rule,
        Severity.CRITICAL if course.now < 0.4 * course.peak and below_start else Severity.WARNING,
        f"the answers get worse: {key} was {course.peak:.2f}, is {course.now:.2f}",
        confidence=0.9,
        evidence=facts(case, key, "kl/old_k3", "policy/entropy", "length/mean", "length/truncated"),
        exhibits=exhibits.whole(exhibits.latest(case, lambda row: row.value == 0.0), "graded wrong, lately"),
        suspects=blame(case, FAULTS),
        source="running medians of the run itself",
    )


def lost(case: Case) -> bool:
    """Whether a tenth of the answers that were once right no longer are."""
    course = case.course("pass/at_1") or case.course("reward/outcome")
    return course is not None and course.now < course.peak - 0.1


def held_out_falls(case: Case) -> Finding:
    """Symptom 12: training gets better and held-out prompts get worse."""
    rule, key = "held-out-falls", "evaluation/pass@1"
    held = case.evaluations.series(key)
    if len(held.values) < 2:
        return skipped(case, rule, f"two evaluations ({key})")
    low = case.evaluations.series("evaluation/pass@1_low").values
    high = case.evaluations.series("evaluation/pass@1_high").values
    best = int(held.values.argmax())
    known = len(low) == len(high) == len(held.values)
    apart = high[-1] < low[best] if known else held.values[-1] < held.values[best] - 0.1
    trained = case.course("reward/outcome") or case.course("reward/mean")
    rising = trained is not None and trained.now > trained.start
    said = f"held-out pass@1 {held.values[0]:.3f} first, {held.values[-1]:.3f} last"
    if not apart or best == len(held.values) - 1:
        return clear(case, rule, said)
    left = held.values[-1] / max(held.values[best], 1e-9)
    severe = left < 0.4 or (rising and left < 0.7)
    return found(
        case,
        rule,
        Severity.CRITICAL if severe else Severity.WARNING,
        f"held-out pass@1 fell from {held.values[best]:.3f} to {held.values[-1]:.3f}"
        + (" while the training reward rose" if rising else ""),
        confidence=0.9 if known else 0.6,
        evidence=(
            Evidence(
                text=said,
                key=key,
                value=float(held.values[-1]),
                baseline=float(held.values[best]),
                steps=(int(held.steps[best]), int(held.steps[-1])),
            ),
            *facts(case, "reward/outcome", "pass/at_1", "kl/reference_k3"),
        ),
        exhibits=exhibits.whole(exhibits.latest(case, lambda row: row.value == 0.0), "graded wrong, lately"),
        suspects=blame(case, (*FAULTS, overfitting)),
        source="bootstrap intervals over held-out prompts that do not overlap",
    )


def overfitting(case: Case) -> Suspicion:
    """Few prompts, seen many times."""
    drawn = case.now("pool/drawn")
    return suspicion(
        0.4 if drawn > 0.99 else 0.2,
        "too-few-prompts",
        "the policy learns these prompts by heart",
        test=f"{share(drawn)} of the pool has been drawn; more prompts, or fewer epochs, close the gap",
        change="more training prompts, or stop at the best evaluation",
    )


def coverage(case: Case) -> Finding:
    """Symptom 12: dynamic sampling trains on an ever smaller part of the pool."""
    rule = "coverage-narrows"
    if missing := case.missing("pool/drawn", "pool/trained"):
        return skipped(case, rule, *missing)
    drawn, trained = case.course("pool/drawn"), case.course("pool/trained")
    assert drawn is not None
    assert trained is not None
    if drawn.count < FEW:
        return too_short(case, rule)
    reached = trained.now / max(drawn.now, 1e-9)
    unlearned = max(0.0, drawn.now - trained.now - case.now("pool/mastered")) / max(drawn.now, 1e-9)
    if reached > 0.5 or unlearned < 0.4:
        return clear(
            case, rule, f"{share(reached)} of the drawn prompts were trained on", fact(case, "pool/trained")
        )
    return found(
        case,
        rule,
        Severity.WARNING,
        f"of the drawn prompts only {share(reached)} were trained on, and those left out are not learned",
        confidence=0.7,
        evidence=facts(
            case, "pool/drawn", "pool/trained", "pool/hopeless", "pool/mastered", "flow/pass_shift"
        ),
        exhibits=exhibits.whole(
            exhibits.latest(case, lambda row: not row.kept), lambda row: f"dropped: {row.reason}"
        ),
        suspects=blame(
            case,
            (rewards.parser_broken, rewards.gold_wrong, group_causes.group_too_small, rewards.data_too_hard),
        ),
        source="prompts drawn, trained on and mastered so far",
    )
