"""Entropy against the run's own start: real reasoning runs live anywhere between 0.02 and 1 nat."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.causes import groups as group_causes
from trimtab.doctor.causes import rewards, updates
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.rules.roots import FAULTS
from trimtab.doctor.suspicion import Suspect, Suspicion, blame, suspicion
from trimtab.doctor.verdicts import clear, facts, followed, found, skipped
from trimtab.record.findings import Finding, Severity

STEPS = 8
COLLAPSED, SUNKEN, EXPLODED = 0.1, 0.25, 2.0
"""Entropy now over entropy at the start; ``SUNKEN`` counts where the answers do not get better meanwhile."""

READ_WITH = ("policy/entropy", "pass/at_1", "pass/at_group", "groups/duplicates", "kl/old_k3", "length/mean")


def clip_too_low(case: Case) -> Suspicion:
    """The usual cause of a slow collapse: an upper bound that keeps unlikely tokens down."""
    box = case.setup.box
    narrow = box is not None and box[1] <= box[0] and not case.setup.sequence_ratio
    return suspicion(
        0.35 if narrow else 0.05,
        "upper-clip-too-low",
        "the upper bound holds back unlikely tokens more than likely ones",
        test="clip/positive_high is well above 0, and entropy falls slower with a wider upper bound",
        change="algorithm.clip_high = 0.28",
    )


COLLAPSE: tuple[Suspect, ...] = (
    *FAULTS,
    clip_too_low,
    group_causes.temperature_too_low,
    rewards.reward_constant,
)
EXPLOSION: tuple[Suspect, ...] = (*FAULTS, updates.entropy_bonus_too_large)


def entropy_collapse(case: Case) -> Finding:
    """Symptom 6: the policy became certain while there was still much to learn."""
    rule, key = "entropy-collapse", "policy/entropy"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    passed = case.course("pass/at_1") or case.course("reward/outcome")
    level, lost = (1.0, False) if passed is None else (passed.now, passed.now < passed.peak - 0.15)
    factor = course.factor()
    stuck = factor < SUNKEN and passed is not None and not passed.rises
    certain_and_wrong = (factor < COLLAPSED or stuck) and level < 0.75
    fell_at_once = factor < 0.3 and lost and course.falls
    if passed is None or not (certain_and_wrong or fell_at_once):
        if passed is None and factor < COLLAPSED:
            return skipped(case, rule, "pass/at_1")
        title = f"entropy is {factor:.2f} times its start"
        learning = factor < 0.5 and passed is not None and passed.rises
        title += ", while answers became right: that is learning" if learning else ""
        return clear(case, rule, title, *facts(case, key, "pass/at_1"))
    severe = factor < 0.05 and level < 0.5 and (lost or not passed.rises)
    return found(
        case,
        rule,
        Severity.CRITICAL if severe else Severity.WARNING,
        f"entropy fell to {factor:.2f} of its start while only {level:.0%} of the answers are right",
        confidence=0.85 if severe else 0.7,
        evidence=facts(case, *READ_WITH),
        exhibits=exhibits.whole(exhibits.latest(case, lambda row: row.value == 0.0), "certain, and wrong"),
        suspects=blame(case, COLLAPSE),
        source="DAPO, arXiv 2503.14476, section 3.1; judged against the run's own start",
    )


def entropy_explosion(case: Case) -> Finding:
    """Symptom 6: the policy becomes noise."""
    rule, key = "entropy-explosion", "policy/entropy"
    course = followed(case, rule, key, STEPS)
    if isinstance(course, Finding):
        return course
    factor = course.now / max(course.low, course.start, 1e-6)
    passed = case.course("pass/at_1") or case.course("reward/outcome")
    rising = passed is not None and passed.rises
    if factor < EXPLODED or course.now < 0.05 or not (course.rises or factor > 3.0):
        return clear(case, rule, f"entropy is {course.factor():.2f} times its start", *facts(case, key))
    severe = factor > 3.0 and not rising
    return found(
        case,
        rule,
        Severity.CRITICAL if severe else Severity.WARNING,
        f"entropy rose to {factor:.1f} times its start"
        + ("" if rising else " and the answers do not get better"),
        confidence=0.9 if severe else 0.7,
        evidence=facts(case, *READ_WITH, "kl/reference_k3"),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(case, EXPLOSION),
        source="judged against the run's own start",
    )
