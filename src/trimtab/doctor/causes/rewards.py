"""Causes in data, graders and rewards: what is asked, how it is graded, and what length earns."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.evidence.answers import against_gold, reading
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

LEFT_OUT = re.compile(r"left out (\d+) prompts? whose gold answer")
PART = "grades/part/"
SPREADS = ("groups/outcome_std", "groups/mixed", "reward/std")
TINY = 1e-6


def constant_outcome(case: Case) -> float | None:
    """The value that every answer of every step was graded with; None where grades differ."""
    outcome = case.series("reward/outcome").values
    if len(outcome) < 3 or outcome.max() - outcome.min() > TINY:
        return None
    spreads = [case.series(key).values for key in SPREADS if case.has(key)]
    if any(values.max() > TINY for values in spreads):
        return None
    extreme = outcome[0] <= TINY or outcome[0] >= 1.0 - TINY
    if not spreads and not extreme:  # a mean alone does not say that its parts are alike
        return None
    return float(outcome[0])


def constant_grade(case: Case) -> float | None:
    """Like ``constant_outcome``, or the one grade of all recorded answers that ended by themselves."""
    value, read = constant_outcome(case), reading(case)
    if value is None and read is not None and read.answers >= 40 and len(read.values) == 1:
        return read.values[0]
    return value


def dead_parts(case: Case) -> dict[str, float]:
    """Graders whose part has had one mean in every step, with that mean, where there are several graders."""
    parts = case.family(PART)
    if len(parts) < 2:
        return {}
    courses = {key.removeprefix(PART): case.series(key).values for key in parts}
    return {
        name: float(values[0])
        for name, values in courses.items()
        if len(values) >= 3 and values.max() - values.min() <= TINY
    }


def reward_constant(case: Case) -> Suspicion:
    """By grades that are one number while answers differ."""
    value, read = constant_grade(case), reading(case)
    score, seen = CLEARED, "grades differ"
    if value is not None:
        score, seen = 0.5, f"every finished answer was graded {plain(value)}"
        if TINY < value < 1.0 - TINY:
            score = SHOWN
        elif read is not None and value >= 1.0 - TINY:
            off = read.not_told / read.answers
            score = SHOWN if off > 0.2 else 0.1
            seen += f", though {share(off)} of the answers end in something else than the gold answer"
        elif read is not None:
            score = 0.3 if read.told > 0.05 * read.answers else 0.1
    return suspicion(
        score,
        "reward-constant",
        "the reward is the same whatever the answer says",
        test=f"do answers that differ get different grades? {seen}",
        change="grade three answers by hand and compare: the grader has to read the answer it is given",
    )


def parser_broken(case: Case) -> Suspicion:
    """By answers that end in the gold result and were graded 0."""
    read, truncated = reading(case), case.now("length/truncated")
    score, seen = UNTESTED, "no answers are recorded"
    if read is not None:
        denied = len(read.denied) / max(1, read.told)
        seen = f"{len(read.denied)} of {read.told} answers that end in the gold answer were graded 0"
        by_share = SHOWN if denied > 0.5 else LIKELY if denied > 0.2 else CLEARED
        score = by_share if read.told >= 5 else 0.1
    elif case.now("pass/at_1", 1.0) < 0.01 and truncated < 0.5:
        score = 0.4
    return suspicion(
        score,
        "parser-broken",
        "the grader does not find the answer where the policy writes it",
        test=f"are answers that say the gold result graded right? {seen}",
        change="reward.graders: the marker or pattern of the grader, so that it finds the answers shown",
    )


def format_reward_dead(case: Case) -> Suspicion:
    """By parts of the reward that never gave a point."""
    dead = {name: value for name, value in dead_parts(case).items() if value <= TINY}
    lone = _lone_format(case)
    score = SHOWN if dead else 0.8 if lone else CLEARED
    if not case.family(PART):
        score = UNTESTED
    named = ", ".join(dead) or (lone or "none")
    return suspicion(
        score,
        "format-reward-dead",
        "a part of the reward has never given a point, so it cannot teach",
        test=f"parts that gave 0 to every answer: {named}",
        change="what the part looks for against what answers contain; tags that the template pre-fills count",
    )


def _lone_format(case: Case) -> str | None:
    """A format grader that is the only one and gave nothing."""
    parts = [key.removeprefix(PART) for key in case.family(PART)]
    silent = [name for name in parts if case.series(PART + name).values.max() <= TINY]
    return next((name for name in silent if "format" in name), None)


def grader_faults(case: Case) -> Suspicion:
    """By answers without a grade."""
    faults = case.now("grades/timeout") + case.now("grades/grader_failed") + case.now("grades/not_gradable")
    details = [str(event.get("detail", "")) for event in case.counted("grader_failed")[-3:]]
    said = f"; lately: {details[-1][:100]}" if details and details[-1] else ""
    return suspicion(
        SHOWN if faults > 0.02 else CLEARED,
        "grader-faults",
        "the grader fails or takes too long on answers that deserve a grade",
        test=f"{share(faults)} of the answers got no grade{said}",
        change=_fault_change(case),
    )


def _fault_change(case: Case) -> str:
    limit = case.setup.number("reward.timeout")
    if case.now("grades/timeout") > case.now("grades/grader_failed") and limit is not None:
        return set_to(case, "reward.timeout", float(2 * limit)) + ", or a faster grader"
    return "make the grader return a grade for the answers shown instead of raising"


def gold_wrong(case: Case) -> Suspicion:
    """By groups that agree on one result against the gold one, and by what the start left out."""
    found = against_gold(case)
    excluded = gold_left_out(case)
    score, seen = UNTESTED, "no answers are recorded"
    if found.groups >= 10:
        sure = found.sure_of_gold + len(found.sure_of_other)
        score = float(np.interp(found.share, [0.1, 0.2, 0.35], [0.0, 0.5, 0.9])) if sure else 0.1
        read = reading(case)
        if read is not None and len(read.denied) > 0.3 * max(1, read.told) and read.told >= 5:
            score = 0.1  # then it is the grader that does not read
        seen = (
            f"in {share(found.share)} of {found.groups} groups the answers agree on one result that is not "
            f"the gold one, in {share(found.sure_of_gold / found.groups)} on the gold one"
        )
    if excluded:
        score, seen = (
            max(score, LIKELY),
            f"{seen}; {excluded} gold answers did not grade as right at the start",
        )
    return suspicion(
        score,
        "gold-wrong",
        "gold answers are wrong or unreadable, so right answers earn nothing",
        test=f"does the policy agree with itself against the gold answer? {seen}",
        change="check the gold answers of the prompts shown, and the column they are read from",
    )


def gold_left_out(case: Case) -> int:
    """Prompts that the start of the run left out, because their gold answer did not grade as right."""
    found = (LEFT_OUT.search(line) for line in case.opening)
    return sum(int(match[1]) for match in found if match)


def data_too_hard(case: Case) -> Suspicion:
    """By groups without a right answer; what remains once graders, gold and limits are cleared."""
    wrong, passed = case.median("groups/all_wrong"), case.median("pass/at_1")
    score = 0.6 if wrong > 0.7 and passed < 0.1 else 0.3 if wrong > 0.4 else CLEARED
    return suspicion(
        score,
        "data-too-hard",
        "the policy hardly ever gets one of these prompts right",
        test=f"{share(wrong)} of the groups are all wrong, the pass rate is {share(passed)}, and answers end "
        "by themselves and are read",
        change=_harder_change(case),
    )


def _harder_change(case: Case) -> str:
    size = case.setup.group_size or 8
    return (
        f"easier prompts or a stronger model first; {set_to(case, 'sampling.samples_per_prompt', 4 * size)}"
    )


def data_mastered(case: Case) -> Suspicion:
    """By groups that were all right from the start."""
    right, passed = case.median("groups/all_right"), case.course("pass/at_1")
    level = 0.0 if passed is None else passed.start
    score = 0.7 if right > 0.6 and level > 0.8 else 0.5 if case.now("groups/all_right") > 0.6 else CLEARED
    return suspicion(
        score,
        "data-mastered",
        "the policy already answers these prompts: nothing is left to learn from them",
        test=f"{share(right)} of the groups are all right, the pass rate began at {share(level)}",
        change="harder prompts; data.memory.mastered_rest = 3 rests what is mastered",
    )


def reward_too_coarse(case: Case) -> Suspicion:
    """By groups with one partial grade throughout."""
    alike = case.now("groups/all_alike")
    return suspicion(
        0.7 if alike > 0.3 else 0.1,
        "reward-too-coarse",
        "answers of different worth get the same partial grade",
        test=f"{share(alike)} of the groups have one partial grade throughout",
        change="a grader with finer steps, or one that grades right and wrong only",
    )
