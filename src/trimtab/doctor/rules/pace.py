"""Asynchronous runs: which of sampling and training stands still for the other."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.suspicion import Suspicion, blame, set_to, share, suspicion
from trimtab.doctor.verdicts import FEW, absent, clear, fact, facts, found, skipped, too_short
from trimtab.record.findings import Finding, Severity

IDLE = 0.3
"""Share of its time that either may stand still before it is worth a word."""


def standing_still(case: Case) -> Finding:
    """The slower of the two sets the pace; the other's machines wait for it."""
    rule, key = "standing-still", "async/trainer_wait"
    if not len(case.history):
        return skipped(case, rule, key)
    if not case.has("async/queue"):
        return absent(case, rule, "sampling and training take turns")
    if missing := case.missing(key, "async/sampler_wait", "seconds/step", "seconds/sample"):
        return skipped(case, rule, *missing)
    if len(case.history) < FEW:
        return too_short(case, rule)
    trainer = _share(case, key, "seconds/step")
    sampler = _share(case, "async/sampler_wait", "async/sampler_wait", "seconds/sample", "seconds/grade")
    seen = f"training stands still {share(trainer)} of its time, sampling {share(sampler)}"
    if max(trainer, sampler) < IDLE:
        return clear(case, rule, seen, fact(case, "async/overlap"))
    by_sampling = trainer >= sampler
    return found(
        case,
        rule,
        Severity.NOTE,
        seen,
        confidence=0.8,
        evidence=facts(case, key, "async/sampler_wait", "async/queue", "async/overlap", "staleness/mean"),
        suspects=blame(case, (slow_sampling if by_sampling else slow_training, waiting_for_drains)),
        source="seconds waited over seconds of the steps; the first step, which always waits, left out",
    )


def slow_sampling(case: Case) -> Suspicion:
    """Training waits."""
    engines = int(case.setup.number("cluster.engines") or 1)
    return suspicion(
        0.6,
        "sampling-too-slow",
        "sampling and grading take longer than training",
        test=f"seconds/sample has a median of {case.median('seconds/sample'):.2g}, seconds/update of "
        f"{case.median('seconds/update'):.2g}",
        change=f"{set_to(case, 'cluster.engines', engines + 1)}, or fewer trainers",
    )


def slow_training(case: Case) -> Suspicion:
    """Sampling waits at its bound."""
    trainers = int(case.setup.number("cluster.trainers") or 0)
    return suspicion(
        0.6,
        "training-too-slow",
        "training takes longer than sampling, which waits at the staleness bound",
        test=f"seconds/update has a median of {case.median('seconds/update'):.2g}, seconds/sample of "
        f"{case.median('seconds/sample'):.2g}",
        change=f"{set_to(case, 'cluster.trainers', max(2, trainers + 1))}, or fewer engines; more staleness "
        "would not help, only make answers older",
    )


def waiting_for_drains(case: Case) -> Suspicion:
    """Both wait where every delivery of weights waits for the last answer."""
    drains = case.setup.setting("cluster.in_flight") == "drain"
    bound = int(case.setup.number("cluster.staleness") or 1)
    return suspicion(
        0.5 if drains else 0.0,
        "drained-too-often",
        "weights are delivered only when the last running answer has ended",
        test=f"answers are drained every {bound} steps",
        change=f'{set_to(case, "cluster.staleness", bound + 1)}, or cluster.in_flight = "update", which '
        "cannot be repeated exactly",
    )


def _share(case: Case, waited: str, *whole: str) -> float:
    """Seconds waited over the seconds of all the keys, after the first step."""
    total = sum(float(np.sum(case.series(key).values[1:])) for key in whole)
    return float(np.sum(case.series(waited).values[1:])) / total if total > 0.0 else 0.0
