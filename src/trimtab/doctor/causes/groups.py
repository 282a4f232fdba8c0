"""Causes in what is sampled: how many answers, how warmly, to which prompts, from which seeds."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.evidence.answers import repeated_prompts, repeated_seeds
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


def temperature_too_low(case: Case) -> Suspicion:
    """By the run's own temperature."""
    now = case.setup.temperature
    score, seen = UNTESTED, "sampling.temperature is not recorded"
    if now is not None:
        score = 0.9 if now < 0.5 else LIKELY if now < 0.7 else CLEARED
        seen = f"it is {plain(now)}; {share(case.now('groups/duplicates'))} of the answers repeat another one"
    return suspicion(
        score,
        "temperature-too-low",
        "answers to one prompt are nearly the same, so their group has nothing to compare",
        test=f"sampling.temperature near 1 gives a group its variety: {seen}",
        change=set_to(case, "sampling.temperature", 1.0),
    )


def group_too_small(case: Case) -> Suspicion:
    """By p^G + (1 - p)^G at the measured pass rate."""
    size = case.setup.group_size
    passed = case.median("pass/at_1", 0.5)
    score, seen = UNTESTED, "sampling.samples_per_prompt is not recorded"
    wanted = 8
    if size is not None:
        expected = uniform_share(passed, size)
        wanted = max(8, 4 * size)
        score = 0.85 if size <= 3 and 0.05 < passed < 0.95 else CLEARED if size >= 8 else UNTESTED
        seen = (
            f"with {size} answers and a pass rate of {share(passed)}, {share(expected)} of the groups are "
            f"uniform even if all prompts are alike; with {wanted} it would be "
            f"{share(uniform_share(passed, wanted))}"
        )
    return suspicion(
        score,
        "group-too-small",
        "too few answers a prompt: they are all right or all wrong by chance",
        test=f"a group is uniform with probability p^G + (1 - p)^G: {seen}",
        change=set_to(case, "sampling.samples_per_prompt", wanted),
    )


def uniform_share(passed: float, size: int) -> float:
    """p^G + (1 - p)^G."""
    return passed**size + (1.0 - passed) ** size


def duplicate_prompts(case: Case) -> Suspicion:
    """By prompts whose text stands in one step several times."""
    repeated, _ = repeated_prompts(case)
    score = SHOWN if repeated > 0.3 else LIKELY if repeated > 0.1 else CLEARED
    if not case.rollouts.steps:
        score = UNTESTED
    return suspicion(
        score,
        "duplicate-prompts",
        "the same question stands in the data many times: a step trains on few different ones",
        test=f"{share(repeated)} of a step's groups ask what another group of the step asks too",
        change='data.duplicates = "merge"',
    )


def seeds_repeat(case: Case) -> Suspicion:
    """By seeds in the record."""
    rows = repeated_seeds(case)
    return suspicion(
        SHOWN if rows else CLEARED if case.rollouts.steps else UNTESTED,
        "seeds-repeat",
        "answers of a group are sampled from one random state",
        test=f"{len(rows)} recorded answers share the seed of another one of their group",
        change="give every rollout a seed of its own",
    )
