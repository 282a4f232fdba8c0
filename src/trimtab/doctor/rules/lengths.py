"""Length: growth, collapse, what it earns, and what the limit and the length penalty do to it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.causes import lengths as length_causes
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.rules.roots import FAULTS
from trimtab.doctor.suspicion import Suspect, Suspicion, blame, share, suspicion
from trimtab.doctor.verdicts import FEW, absent, clear, fact, facts, followed, found, skipped, too_short
from trimtab.record.findings import Finding, Severity

STEPS = 8
GREW, SHRANK = 1.35, 0.7
READ_WITH = (
    "length/mean",
    "length/truncated",
    "reward/outcome",
    "reward/length_correlation_within",
    "pass/at_1",
)


def long_thought(case: Case) -> Suspicion:
    """Longer answers that are right more often are what reasoning models learn."""
    passed = case.course("pass/at_1")
    better = passed is not None and passed.rises
    return suspicion(
        0.5 if better else 0.05,
        "longer-reasoning",
        "answers grow because longer ones are right more often",
        test="pass/at_1 and the held-out pass@1 rise with the length",
        change="nothing, while length/truncated stays low",
    )


GROWTH: tuple[Suspect, ...] = (*FAULTS, long_thought)


def length_growth(case: Case) -> Finding:
    """Symptom 2: answers grow fast, with or without reward."""
    rule, key = "length-growth", "length/mean"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    passed, factor = case.course("pass/at_1"), course.factor()
    better = passed is not None and passed.rises and passed.now > passed.start + 0.05
    cut = case.course("length/truncated")
    runs_into_limit = cut is not None and cut.now > 0.3 and cut.change > 0.2
    if not course.rises or factor < GREW or (better and not runs_into_limit):
        return clear(case, rule, f"length is {factor:.2f} times its start", fact(case, key))
    severe = factor > 1.7 and runs_into_limit and not better
    return found(
        case,
        rule,
        Severity.CRITICAL if severe else Severity.WARNING,
        f"answers grew from {course.start:.0f} to {course.now:.0f} tokens without getting better",
        confidence=0.9 if severe else 0.75,
        evidence=facts(case, *READ_WITH),
        exhibits=exhibits.extreme_lengths(case, longest=True),
        suspects=blame(case, GROWTH),
        source="length against the run's own start, with Mann-Kendall's test of the trend",
    )


def length_collapse(case: Case) -> Finding:
    """Symptom 2: answers shrink."""
    rule, key = "length-collapse", "length/mean"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    passed, factor = case.course("pass/at_1") or case.course("reward/outcome"), course.factor()
    worse = passed is not None and passed.now < max(passed.start, passed.peak - 0.1) - 0.05
    flat = passed is None or not passed.rises
    if factor > SHRANK or not (worse or flat) or not (course.falls or factor < 0.4):
        return clear(case, rule, f"length is {factor:.2f} times its start", fact(case, key))
    return found(
        case,
        rule,
        Severity.CRITICAL if factor < 0.4 and worse else Severity.WARNING,
        f"answers shrank from {course.start:.0f} to {course.now:.0f} tokens without getting better",
        confidence=0.85 if worse else 0.65,
        evidence=facts(case, *READ_WITH, "reward/shaping", "reward/shaping_share"),
        exhibits=exhibits.extreme_lengths(case, longest=False),
        suspects=blame(case, FAULTS),
        source="length against the run's own start",
    )


def length_rewarded(case: Case) -> Finding:
    """Symptoms 1 and 2: inside a group, the longer answer earns more."""
    rule, key = "length-earns-reward", "reward/length_correlation_within"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    values = case.series(key).values
    if len(values) < FEW:
        return too_short(case, rule)
    level = float(np.median(values))
    if (
        level < 0.45
        or min(case.median("groups/mixed", 1.0), case.now("groups/mixed", 1.0)) < length_causes.FEW_MIXED
    ):
        return clear(case, rule, f"inside groups r = {level:.2f} between grade and length", fact(case, key))
    length = case.course("length/mean")
    grows = length is not None and length.rises and length.factor() > 1.15
    return found(
        case,
        rule,
        Severity.CRITICAL if level > 0.6 and grows else Severity.WARNING,
        f"of two answers to one prompt the longer one earns more (r = {level:.2f})"
        + (", and answers grow" if grows else ""),
        confidence=0.9 if level > 0.6 else 0.6,
        evidence=facts(case, key, *READ_WITH),
        exhibits=exhibits.extreme_lengths(case, longest=True),
        suspects=blame(
            case, (length_causes.reward_pays_length, length_causes.max_length_too_short, long_thought)
        ),
        source="Pearson's r inside groups: what the gradient sees",
    )


def truncation(case: Case) -> Finding:
    """Symptom 7: the limit decides the grade."""
    rule, key = "truncation", "length/truncated"
    course = followed(case, rule, key)
    if isinstance(course, Finding):
        return course
    passed = case.course("pass/at_1") or case.course("reward/outcome")
    if course.now < 0.2 or (course.falls and course.now < 0.5 and passed is not None and passed.rises):
        return clear(case, rule, f"{share(course.now)} of the answers are cut off", fact(case, key))
    low = passed is None or passed.now < 0.5
    suspects = (length_causes.max_length_too_short, *FAULTS, length_causes.overlong_penalty_too_weak)
    return found(
        case,
        rule,
        Severity.CRITICAL if course.now > 0.5 and low else Severity.WARNING,
        f"{share(course.now)} of the answers are cut off at the limit",
        confidence=0.9,
        evidence=facts(case, key, *READ_WITH),
        exhibits=exhibits.truncated(case),
        suspects=blame(case, suspects),
        source="the sampler's own finish reason",
    )


def length_penalty(case: Case) -> Finding:
    """Symptom 7: the overlong penalty makes answers stop early, or does nothing."""
    rule, key = "length-penalty", "reward/shaping_share"
    if case.setup.parts is not None and case.setup.parts.shaping is None:
        return absent(case, rule, "there is no length penalty")
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    touched, length = case.course(key), case.course("length/mean")
    assert touched is not None
    if touched.count < FEW:
        return too_short(case, rule)
    strong = length_causes.overlong_penalty_too_strong(case)
    shorter = length is not None and length.factor() < 0.85
    weight = length_causes.penalty_weight(case)
    if max(touched.start, touched.now) > 0.5 and (shorter or weight > 0.15):
        passed = case.course("pass/at_1")
        worse = passed is not None and passed.now < passed.start + 0.02
        return found(
            case,
            rule,
            Severity.CRITICAL
            if shorter and worse and length is not None and length.factor() < 0.5
            else Severity.WARNING,
            f"the length penalty touched {share(touched.start)} of the answers at the start"
            + (f", and they shrank to {length.factor():.2f} of their length" if shorter and length else ""),
            confidence=0.85 if shorter else 0.65,
            evidence=facts(
                case, key, "reward/shaping", "groups/reward_std", "length/mean", "length/right", "pass/at_1"
            ),
            exhibits=exhibits.extreme_lengths(case, longest=False),
            suspects=(strong,),
            source="DAPO, arXiv 2503.14476, eq. 13: the ramp belongs to the last fifth of the limit",
        )
    cut = case.course("length/truncated")
    if cut is not None and cut.now > 0.3 and touched.now > 0.3 and not cut.falls and cut.count >= STEPS:
        return found(
            case,
            rule,
            Severity.WARNING,
            f"the length penalty does not keep answers from the limit: {share(cut.now)} are cut off",
            confidence=0.5,
            evidence=facts(case, key, "length/truncated", "reward/shaping"),
            exhibits=exhibits.truncated(case),
            suspects=blame(
                case,
                (
                    length_causes.overlong_penalty_too_weak,
                    length_causes.max_length_too_short,
                    token_causes.eos_masked,
                ),
            ),
            source="truncation and the penalty's share over time",
        )
    return clear(
        case, rule, f"the length penalty touches {share(touched.now)} of the answers", fact(case, key)
    )
