"""Is there anything to learn from: groups that differ, answers that differ, a loss that means something."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.causes import groups as group_causes
from trimtab.doctor.causes import lengths as length_causes
from trimtab.doctor.causes import rewards
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.evidence.answers import repeated_prompts
from trimtab.doctor.rules.roots import FAULTS
from trimtab.doctor.suspicion import Suspect, blame, share
from trimtab.doctor.verdicts import FEW, absent, clear, fact, facts, followed, found, skipped, too_short
from trimtab.record.findings import Evidence, Finding, Severity
from trimtab.record.rows import RolloutRow

UNIFORM, HARDLY_ANY = 0.75, 0.95
"""Shares of groups with one grade throughout: from the first on a run wastes, from the second it stands."""

CAUSES: tuple[Suspect, ...] = (
    rewards.reward_constant,
    rewards.parser_broken,
    rewards.gold_wrong,
    *FAULTS,
    length_causes.max_length_too_short,
    group_causes.temperature_too_low,
    group_causes.group_too_small,
    rewards.data_mastered,
    rewards.data_too_hard,
    rewards.reward_too_coarse,
    rewards.format_reward_dead,
)


def uniform_groups(case: Case) -> Finding:
    """Symptom 3: the answers of a group all get the same grade, for long."""
    rule, key = "no-signal-in-groups", "groups/uniform"
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    if case.setup.has_critic:
        return absent(case, rule, "a critic is the baseline, not the group")
    uniform = case.course(key)
    assert uniform is not None
    if uniform.count < FEW:
        return too_short(case, rule)
    level, size = case.median(key), case.setup.group_size
    grown = uniform.now > UNIFORM and uniform.start < 0.5
    small = size is not None and size <= 3 and level > 0.35
    if level < UNIFORM and not small and not grown:
        return clear(case, rule, f"{share(1 - uniform.now)} of the groups can teach", fact(case, key))
    if grown and _learned(case):
        return clear(case, rule, "groups became uniform because the answers became right", *_facts(case))
    dead = min(level, uniform.now) > HARDLY_ANY
    severity = Severity.CRITICAL if dead else Severity.WARNING
    title = (
        f"{share(uniform.now)} of the groups have one grade throughout: no advantage, nothing learned there"
    )
    return found(
        case,
        rule,
        severity,
        title,
        confidence=0.95 if dead else 0.8,
        evidence=_facts(case),
        exhibits=exhibits.whole(
            exhibits.latest(case, lambda row: row.grade in ("right", "wrong", "partial")),
            lambda row: f"graded {row.grade}, like its whole group",
        ),
        suspects=blame(case, CAUSES),
        source="a group baseline makes every advantage 0 there; P = p^G + (1 - p)^G",
    )


def _learned(case: Case) -> bool:
    passed = case.course("pass/at_1")
    return passed is not None and passed.start < 0.85 and passed.now > 0.8


def _facts(case: Case) -> tuple[Evidence, ...]:
    return facts(
        case, "groups/uniform", "groups/all_right", "groups/all_wrong", "groups/all_alike", "pass/at_1"
    )


def few_useful_groups(case: Case) -> Finding:
    """Symptom 4: dynamic sampling throws most of what it samples away."""
    rule, key = "few-useful-groups", "flow/keep_rate"
    if case.setup.parts is not None and not case.setup.selects:
        return absent(case, rule, "no groups are selected")
    if missing := case.missing(key):
        return skipped(case, rule, *missing)
    kept, fill = case.course(key), case.course("flow/fill")
    assert kept is not None
    if kept.count < FEW:
        return too_short(case, rule)
    starved = fill is not None and fill.now < 0.7
    if kept.now >= 0.25 and not starved:
        return clear(case, rule, f"{share(kept.now)} of the drawn groups were kept", fact(case, key))
    learned = _learned(case)
    if learned and not starved:
        return clear(case, rule, "few groups are left because the answers became right", *_facts(case))
    return found(
        case,
        rule,
        Severity.NOTE if learned else Severity.CRITICAL if kept.now < 0.05 else Severity.WARNING,
        f"only {share(kept.now)} of the drawn groups are worth training on"
        + (": these prompts are learned" if learned else ""),
        confidence=0.85,
        evidence=(*facts(case, key, "flow/fill", "flow/draws"), *_facts(case)),
        exhibits=exhibits.whole(
            exhibits.latest(case, lambda row: not row.kept), lambda row: f"dropped: {row.reason}"
        ),
        suspects=blame(case, CAUSES),
        source="DAPO, arXiv 2503.14476, section 3.2",
    )


def loss_near_zero(case: Case) -> Finding:
    """Symptom 10: a loss near 0 is normal with group baselines; advantages tell whether there is a signal."""
    rule = "loss-near-zero"
    if missing := case.missing("advantage/absolute"):
        return skipped(case, rule, *missing)
    size, norm = case.course("advantage/absolute"), case.course("optimizer/grad_norm")
    assert size is not None
    if size.count < FEW:
        return too_short(case, rule)
    dead = size.now < 1e-4 or (norm is not None and norm.now == 0.0)
    if not dead:
        loss = abs(case.now("loss/policy", case.now("loss/total", 1.0)))
        if loss < 0.02 * max(size.now, 1e-9):
            title = "the loss is near 0, which is normal: advantages of a group cancel, their size does not"
            return clear(case, rule, title, *facts(case, "advantage/absolute", "optimizer/grad_norm"))
        return clear(case, rule, "the loss is not near 0", fact(case, "advantage/absolute"))
    return found(
        case,
        rule,
        Severity.CRITICAL,
        "the loss is near 0 because there is nothing to learn from: the advantages are 0",
        confidence=0.95,
        evidence=facts(case, "advantage/absolute", "optimizer/grad_norm", "groups/uniform", "loss/policy"),
        suspects=blame(case, CAUSES),
        source="policy gradient = sum of weight * advantage * gradient",
    )


def duplicate_rollouts(case: Case) -> Finding:
    """Symptom 12: answers of a group repeat each other more than the policy's entropy explains."""
    rule, key = "duplicate-rollouts", "groups/duplicates"
    course = followed(case, rule, key)
    if isinstance(course, Finding):
        return course
    seeds = group_causes.seeds_repeat(case)
    cold = case.setup.temperature is not None and case.setup.temperature < 0.6
    expected = expected_duplicates(case)
    unexplained = expected is not None and course.start > max(0.5, 1.3 * expected + 0.15)
    if seeds.score < 0.9 and not (cold and course.start > 0.5) and not unexplained:
        return clear(case, rule, f"{share(course.now)} of the answers repeat another one", fact(case, key))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"{share(course.start)} of the answers repeated another answer of their group from the start on",
        confidence=0.9 if seeds.score > 0.9 or cold else 0.6,
        evidence=facts(case, key, "groups/uniform", "policy/entropy"),
        exhibits=exhibits.whole(_repeating(case), "token for token the same as another one of its group"),
        suspects=blame(
            case, (group_causes.seeds_repeat, group_causes.temperature_too_low, rewards.data_mastered)
        ),
        source="reports of engines that sample with a checkpoint's own top_k = 1",
    )


def expected_duplicates(case: Case) -> float | None:
    """Upper guess of the share of answers that repeat another one, from the entropy of whole answers.

    With entropy H of an answer there are about exp(H) likely ones; of G draws from K equally likely
    ones K (1 - (1 - 1/K)^G) differ. Real answers are less even, so this is low for small H only.
    """
    entropy, length, size = case.course("policy/entropy"), case.course("length/mean"), case.setup.group_size
    if entropy is None or length is None or size is None:
        return None
    kinds = float(np.exp(min(0.5 * entropy.start * length.start, 30.0)))
    return 1.0 - kinds * (1.0 - (1.0 - 1.0 / kinds) ** size) / size if kinds > 1 else 1.0 - 1.0 / size


def _repeating(case: Case) -> list[RolloutRow]:
    seen: dict[tuple[str, str], int] = {}
    for row in case.rollouts.all:
        seen[row.group, row.text] = seen.get((row.group, row.text), 0) + 1
    return exhibits.latest(case, lambda row: seen[row.group, row.text] > 1)


def repeating_prompts(case: Case) -> Finding:
    """Symptom 12: a step asks the same question several times."""
    rule = "repeated-prompts"
    if not case.rollouts.steps:
        return skipped(case, rule, "rollouts")
    repeated, rows = repeated_prompts(case)
    if repeated <= 0.1:
        return clear(case, rule, f"{share(repeated)} of a step's groups repeat a question of the step")
    return found(
        case,
        rule,
        Severity.WARNING,
        f"{share(repeated)} of a step's groups ask what another group of the same step asks",
        confidence=0.95,
        evidence=facts(case, "pool/drawn", "pool/trained"),
        exhibits=exhibits.whole(rows, "its prompt stands in this step more than once"),
        suspects=blame(case, (group_causes.duplicate_prompts,)),
        source="the prompts as rendered, in the record",
    )
