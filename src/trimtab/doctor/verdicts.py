"""The three things a rule can say, as findings."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from trimtab.doctor.case import Case
from trimtab.doctor.statistics import Course
from trimtab.doctor.suspicion import Suspicion, causes
from trimtab.record.findings import Evidence, Exhibit, Finding, Outcome, Severity

FEW = 4
"""Steps below which no course is judged."""


def skipped(case: Case, rule: str, *missing: str) -> Finding:
    """The rule could not look: these keys are not recorded."""
    keys = ", ".join(missing)
    return Finding(
        rule=rule,
        outcome=Outcome.SKIPPED,
        title=f"cannot be judged without {keys}",
        step=case.step,
        missing=missing,
    )


def too_short(case: Case, rule: str, steps: int = FEW) -> Finding:
    """The rule needs more steps than there are."""
    return Finding(
        rule=rule,
        outcome=Outcome.SKIPPED,
        title=f"needs {steps} steps, there are {len(case.history)}",
        step=case.step,
    )


def followed(case: Case, rule: str, key: str, steps: int = FEW) -> Course | Finding:
    """The course of the metric that the rule is about; or the finding that it could not look."""
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    course = case.course(key)
    assert course is not None, "a metric that is not missing has a course"
    return course if course.count >= steps else too_short(case, rule, steps)


def absent(case: Case, rule: str, why: str) -> Finding:
    """The rule has nothing to look at in this run: no critic, no clip, no length penalty."""
    return Finding(rule=rule, outcome=Outcome.CLEAR, title=f"does not apply: {why}", step=case.step)


def clear(case: Case, rule: str, title: str, *evidence: Evidence) -> Finding:
    """The rule looked and nothing is wrong; ``title`` says what it saw."""
    return Finding(rule=rule, outcome=Outcome.CLEAR, title=title, step=case.step, evidence=evidence)


def found(
    case: Case,
    rule: str,
    severity: Severity,
    title: str,
    *,
    confidence: float,
    evidence: Sequence[Evidence] = (),
    exhibits: Sequence[Exhibit] = (),
    suspects: Sequence[Suspicion] = (),
    source: str = "",
) -> Finding:
    """The rule found its symptom. suspects: the likeliest first, as ``blame`` orders them."""
    return Finding(
        rule=rule,
        outcome=Outcome.FOUND,
        title=title,
        step=case.step,
        severity=severity,
        evidence=tuple(evidence),
        exhibits=tuple(exhibits),
        causes=causes(suspects),
        confidence=round(min(max(confidence, 0.05), 0.99), 2),
        source=source,
    )


def fact(case: Case, key: str, text: str = "") -> Evidence:
    """A metric now against its own start. ``text`` defaults to that sentence."""
    course = case.course(key)
    if course is None:
        return Evidence(text=text or f"{key} is not recorded", key=key)
    said = text or f"{key} {number(course.start)} at the start, {number(course.now)} now"
    return Evidence(text=said, key=key, value=course.now, baseline=course.start, steps=course.now_steps)


def facts(case: Case, *keys: str) -> tuple[Evidence, ...]:
    """``fact`` for those of the keys that are recorded, each once."""
    return tuple(fact(case, key) for key in dict.fromkeys(keys) if case.has(key))


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"
