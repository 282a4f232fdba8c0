"""Graders: faults, parts that never move, right answers that get nothing."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.causes import lengths as length_causes
from trimtab.doctor.causes import rewards
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.evidence.answers import against_gold, reading
from trimtab.doctor.suspicion import LIKELY, blame, share
from trimtab.doctor.verdicts import FEW, clear, facts, found, skipped, too_short
from trimtab.record.findings import Evidence, Finding, Severity

FAULTY, BROKEN = 0.02, 0.3


def grader_faults(case: Case) -> Finding:
    """Symptom 11: answers without a grade."""
    rule, key = "grader-faults", "grades/ungraded"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    course = case.course(key)
    assert course is not None
    level = case.median(key)
    if level < FAULTY and course.now < FAULTY:
        return clear(case, rule, f"{share(course.now)} of the answers have no grade")
    return found(
        case,
        rule,
        Severity.CRITICAL if level > BROKEN else Severity.WARNING,
        f"{share(max(level, course.now))} of the answers got no grade",
        confidence=0.95,
        evidence=facts(case, key, "grades/timeout", "grades/grader_failed", "grades/not_gradable"),
        exhibits=exhibits.ungraded(case),
        suspects=blame(case, (rewards.grader_faults, rewards.gold_wrong)),
        source="an answer without a grade has no reward, never 0",
    )


def constant_reward(case: Case) -> Finding:
    """Symptom 11: every answer of the run has the same grade."""
    rule, key = "constant-reward", "reward/outcome"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    if len(case.series(key).values) < FEW:
        return too_short(case, rule)
    value, read = rewards.constant_grade(case), reading(case)
    if value is None:
        return clear(case, rule, "grades differ")
    if value >= 1.0 and read is not None and read.not_told < 0.2 * read.answers:
        return clear(case, rule, "every answer is right, and says so")
    return found(
        case,
        rule,
        Severity.CRITICAL,
        f"every finished answer was graded {value:g}",
        confidence=0.97,
        evidence=facts(case, key, "groups/outcome_std", "groups/mixed", "length/truncated"),
        exhibits=exhibits.whole(
            exhibits.latest(case, lambda row: row.value is not None), f"graded {value:g}, like all others"
        ),
        suspects=blame(
            case,
            (
                rewards.reward_constant,
                rewards.parser_broken,
                rewards.gold_wrong,
                length_causes.max_length_too_short,
                rewards.data_mastered,
                rewards.data_too_hard,
                rewards.format_reward_dead,
            ),
        ),
        source="what never moves cannot teach",
    )


def dead_part(case: Case) -> Finding:
    """Symptom 11: one of several graders has given the same to every answer."""
    rule = "reward-part-dead"
    parts = case.family(rewards.PART)
    if not parts:
        return skipped(case, rule, "grades/part/{grader}")
    if len(case.series(parts[0]).values) < FEW:
        return too_short(case, rule)
    dead = rewards.dead_parts(case)
    silent = {name for name, value in dead.items() if value <= rewards.TINY}
    if not silent:
        sure = ", ".join(sorted(dead))
        return clear(case, rule, f"always full: {sure}" if dead else "every part of the reward moves")
    named = ", ".join(sorted(silent))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"{named} has not given a point to any answer",
        confidence=0.95,
        evidence=facts(case, *(rewards.PART + name for name in sorted(silent))),
        exhibits=exhibits.whole(
            exhibits.latest(case, lambda row: any(row.parts.get(name) == 0.0 for name in silent)),
            lambda row: f"{named} gave 0: {row.detail[:80]}",
        ),
        suspects=blame(case, (rewards.format_reward_dead,)),
        source="what never moves cannot teach",
    )


def denied_answers(case: Case) -> Finding:
    """Symptom 11: answers that say the gold result are graded wrong."""
    rule = "right-answers-denied"
    read = reading(case)
    if read is None:
        return skipped(case, rule, "rollouts with plain gold answers")
    suspect = rewards.parser_broken(case)
    if read.told < 5 or suspect.score < LIKELY:
        return clear(
            case, rule, f"{len(read.denied)} of {read.told} answers with the gold result were graded 0"
        )
    denied = len(read.denied) / read.told
    return found(
        case,
        rule,
        Severity.CRITICAL if denied > 0.8 else Severity.WARNING,
        f"{share(denied)} of the answers that end in the gold result were graded 0",
        confidence=0.9 if denied > 0.5 else 0.7,
        evidence=(
            Evidence(
                text=f"{len(read.denied)} of {read.told} finished answers whose result is the gold one got 0",
                key="grades/wrong",
                value=denied,
                steps=(case.rollouts.steps[0], case.rollouts.steps[-1]),
            ),
        ),
        exhibits=exhibits.whole(
            read.denied[::-1], lambda row: f"ends in the gold answer {row.answer!r}, graded 0"
        ),
        suspects=blame(case, (rewards.parser_broken, rewards.reward_constant)),
        source="the answer's last number or line against the gold answer, read naively",
    )


def gold_answers(case: Case) -> Finding:
    """Symptom 11: gold answers that the policy, sure of itself, contradicts; or that do not verify."""
    rule = "gold-answers"
    against, left_out = against_gold(case), rewards.gold_left_out(case)
    if against.groups < 10 and not left_out:
        return skipped(case, rule, "rollouts with plain gold answers")
    suspect = rewards.gold_wrong(case)
    if suspect.score < LIKELY:
        return clear(
            case, rule, f"the policy contradicts the gold answer in {share(against.share)} of the groups"
        )
    against_rows = [rows[0] for rows in against.sure_of_other][::-1]
    return found(
        case,
        rule,
        Severity.WARNING,
        f"in {share(against.share)} of the groups the answers agree on something else than the gold answer"
        if against.share > 0.1
        else f"{left_out} gold answers do not grade as right",
        confidence=suspect.score,
        evidence=(
            Evidence(
                text=f"{len(against.sure_of_other)} of {against.groups} groups agree against gold, "
                f"{against.sure_of_gold} with it",
                key="groups/all_wrong",
                value=against.share,
            ),
            *facts(case, "groups/all_wrong", "pass/at_group"),
        ),
        exhibits=exhibits.whole(
            against_rows, lambda row: f"its group agrees on this result, gold is {row.answer!r}"
        ),
        suspects=blame(case, (rewards.gold_wrong, rewards.parser_broken)),
        source="agreement within groups; a gold answer graded against itself at the start",
    )
