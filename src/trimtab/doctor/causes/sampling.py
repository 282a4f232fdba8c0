"""Causes between sampler and trainer: what either was given, and with which weights."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.evidence.agreement import Agreement, agreements
from trimtab.doctor.evidence.answers import doubled_start
from trimtab.doctor.suspicion import (
    CLEARED,
    LIKELY,
    SHOWN,
    UNTESTED,
    Suspicion,
    plain,
    share,
    suspicion,
)

SURELY = 2e-3
"""Chance of a trend by luck below which sampled answers are said to change."""

APART = 1e-3
"""Nats: a mean |difference| of log-probabilities that float32 on both sides does not explain."""


@dataclass(frozen=True, slots=True)
class Onset:
    """The mismatch at the run's first steps and now, in nats a token (means of |difference|)."""

    first: float
    now: float

    @property
    def static(self) -> bool:
        """There before any update: the machines differ, or what they are given."""
        return self.first > APART and self.first > 0.1 * self.now

    @property
    def growing(self) -> bool:
        """Nothing at first, then more: the weights differ."""
        return self.now > APART and self.first <= max(0.1 * self.now, 1e-5)


def onset(case: Case) -> Onset | None:
    """From ``mismatch/logprob``; None where it is not recorded."""
    values = case.series("mismatch/logprob").values
    if not len(values):
        return None
    third = max(1, len(values) // 3)
    return Onset(
        first=float(values[0]),
        now=float(np.median(values[-third:])),
    )


def _earliest(case: Case) -> Agreement | None:
    return next(iter(agreements(case)), None)


def agree_at_first(case: Case) -> bool:
    """Whether sampler and trainer agree to within float32 before anything is trained."""
    when, early = onset(case), _earliest(case)
    if when is not None and (when.growing or when.first <= APART):
        return True
    return early is not None and early.size <= APART


def temperature_mismatch(case: Case) -> Suspicion:
    """By log-odds that differ by one factor, from the first step on."""
    early = _earliest(case)
    score, seen = UNTESTED, "no values per token are recorded"
    if agree_at_first(case):
        score, seen = CLEARED, "there is no difference before the first update"
    elif early is not None and early.odds is not None and early.left is not None and early.size > APART:
        off = abs(early.odds - 1.0) > 0.03
        score = SHOWN if off and early.left < 0.35 else LIKELY if off and early.left < 0.6 else CLEARED
        seen = (
            f"the sampler's log-odds are {early.odds:.2f} times the trainer's, and that factor explains "
            f"{share(1 - min(early.left, 1.0))} of the difference"
        )
    now = case.setup.temperature
    return suspicion(
        score,
        "temperature-mismatch",
        "sampler and trainer use different temperatures, so every ratio starts off from 1",
        test=f"another temperature scales all log-odds by one factor: {seen}",
        change="divide the trainer's logits by the sampler's temperature"
        + ("" if now is None else f" (sampling.temperature = {plain(now)})"),
    )


def retokenized(case: Case) -> Suspicion:
    """By answers of which some agree exactly and others only up to some token."""
    early = _earliest(case)
    score, seen = UNTESTED, "no values per token are recorded"
    if agree_at_first(case):
        score, seen = CLEARED, "there is no difference before the first update"
    elif early is not None and early.size > APART:
        if early.exact == 0.0:
            score = 0.1
        else:
            score = 0.85 if early.onset is not None and early.onset > 0.0 else LIKELY
        seen = f"{share(early.exact)} of the answers agree exactly, the others from some token on"
    return suspicion(
        score,
        "retokenized",
        "text was decoded and encoded again: the trainer sees other tokens than were sampled",
        test=f"re-encoding spoils some answers and leaves the others exact: {seen}",
        change="train on the sampler's own token ids; never encode its text again",
    )


def double_bos(case: Case) -> Suspicion:
    """By the first tokens of the prompts; else by a difference in all answers that has no pattern."""
    doubled, early = doubled_start(case), _earliest(case)
    score, seen = UNTESTED, "no prompt tokens are recorded"
    if doubled:
        score = SHOWN
        ids = doubled[0].tokens.prompt_token_ids[:2].tolist() if doubled[0].tokens is not None else []
        seen = f"every recorded prompt begins with {ids}"
    elif agree_at_first(case):
        score, seen = CLEARED, "there is no difference before the first update"
    elif early is not None:
        spread = early.exact == 0.0 and early.size > APART
        unexplained = early.left is None or early.left > 0.6
        score = 0.5 if spread and unexplained else 0.1
        seen = f"no recorded prompt does; {share(1 - early.exact)} of the answers differ, from the start"
    return suspicion(
        score,
        "double-bos",
        "the start token stands twice: the template writes one and the tokenizer adds another",
        test=f"look at the first prompt tokens: {seen}",
        change="encode rendered prompts without adding special tokens",
    )


def machines_differ(case: Case) -> Suspicion:
    """What remains of a small difference that is there from the start and does not grow."""
    when = onset(case)
    score = 0.3 if when is not None and when.static else CLEARED
    return suspicion(
        score,
        "numerics-differ",
        "both sides compute the same in different precision or with different kernels",
        test="the difference is there at learning rate 0, is small, and does not grow",
        change='trainer.old_logprobs = "recompute", or truncated importance weights',
    )


def _ageing(case: Case) -> bool:
    """Whether trained answers are still getting older, policy by policy."""
    ages = case.series("staleness/mean").values
    third = max(1, len(ages) // 3)
    return len(ages) > 5 and bool(np.median(ages[-third:]) > np.median(ages[third : 2 * third]) + 0.5)


def delivered(case: Case) -> tuple[int, int] | None:
    """(steps in a row at the end without new weights in the engine, steps that its weights lag behind).

    From the events ``synced``, whose ``version`` grows by one a step where every delivery arrives.
    """
    versions: list[int] = []
    for event in case.events:
        if event.get("event") in ("started", "resumed"):  # a new process counts anew
            versions = []
        elif event.get("event") == "synced":
            versions.append(int(event["version"]))
    if len(versions) < 5:
        return None
    same = next((n for n, version in enumerate(reversed(versions)) if version != versions[-1]), len(versions))
    return same - 1, max(0, len(versions) - 1 - (versions[-1] - versions[0]))


def _sampled_answers_move(case: Case) -> list[str]:
    """Metrics of the sampled answers alone that have a trend: with the same weights for ever none has."""
    keys = ("pass/at_1", "groups/duplicates", "length/truncated", "policy/entropy", "groups/uniform")
    courses = ((key, case.course(key)) for key in keys)
    return [key for key, course in courses if course is not None and course.p < SURELY]


def _told_moving(keys: list[str]) -> str:
    return f"{' and '.join(keys[:2])} change" if keys else "what is sampled shows no trend"


def stale_sampler(case: Case) -> Suspicion:
    """By a difference that begins at 0 and levels off, or by versions that lag."""
    when, age = onset(case), case.course("staleness/mean")
    score, seen = UNTESTED, "mismatch/logprob is not recorded"
    if when is not None:
        score, seen = CLEARED, "the sampler has the trainer's weights"
        if when.growing:
            moving = _sampled_answers_move(case)
            score = 0.8 if moving else 0.4
            seen = f"none at the first step, {when.now:.2g} nats now; {_told_moving(moving)}"
    arrived = delivered(case)
    if arrived is not None and arrived[0] < 3 and arrived[1] > 0 and score > CLEARED:
        score, seen = SHOWN, f"{seen}; the engine's version lags {arrived[1]} deliveries behind, and moves"
    if age is not None and age.now >= 1.0 and not _ageing(case):
        score, seen = max(score, 0.9), f"trained answers are {age.now:.1f} policies old"
    return suspicion(
        score,
        "stale-sampler",
        "the sampler runs behind: it answers with weights of some steps ago",
        test=f"the difference begins at 0, and sampled answers change all the same, only later: {seen}",
        change="wait for the new weights before sampling, or bound the staleness",
    )


def weights_never_synced(case: Case) -> Suspicion:
    """By a difference that begins at 0 and grows for ever, or by versions that stand still."""
    when, age = onset(case), case.course("staleness/mean")
    score, seen = UNTESTED, "mismatch/logprob is not recorded"
    if when is not None:
        score, seen = CLEARED, "the sampler has the trainer's weights"
        if when.growing:
            moving = _sampled_answers_move(case)
            score = 0.3 if len(moving) > 1 else 0.5 if moving else 0.9
            seen = f"none at the first step, {when.now:.2g} nats now; {_told_moving(moving)}"
    arrived = delivered(case)
    if arrived is not None and arrived[0] >= max(4, len(case.history) // 3) and score > CLEARED:
        score, seen = 0.97, f"{seen}; the engine's version has not changed for {arrived[0]} steps"
    if age is not None and age.now > 3.0 and _ageing(case):
        score, seen = 0.95, f"trained answers became {age.now:.0f} policies old, older every step"
    return suspicion(
        score,
        "weights-never-synced",
        "the sampler still has its first weights",
        test=f"the difference begins at 0, and sampled answers stay what they were: {seen}",
        change="load the trainer's weights into the sampler after every step",
    )
