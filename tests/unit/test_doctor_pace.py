"""The doctor on asynchronous runs: who waits for whom, and what age of answers was asked for."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor_cases import case_with
from trimtab.doctor.rules import pace, tokens
from trimtab.record.findings import Outcome, Severity


def run_of(staleness: int, in_flight: str = "drain") -> dict[str, Any]:
    return {"cluster": {"staleness": staleness, "in_flight": in_flight, "engines": 2, "trainers": 0}}


def seconds(trainer_wait: float, sampler_wait: float) -> dict[str, Any]:
    return {
        "async/queue": 1.0,
        "async/overlap": 0.5,
        "async/trainer_wait": [60.0] + [trainer_wait] * 19,
        "async/sampler_wait": [0.0] + [sampler_wait] * 19,
        "seconds/step": [70.0] + [10.0] * 19,
        "seconds/sample": [60.0] + [6.0] * 19,
        "seconds/grade": 1.0,
        "seconds/update": 3.0,
    }


@pytest.mark.parametrize(
    ("trainer_wait", "sampler_wait", "in_flight", "cause", "change"),
    [
        (6.0, 0.1, "update", "sampling-too-slow", "cluster.engines = 3"),
        (0.1, 5.0, "update", "training-too-slow", "cluster.trainers = 2"),
        (6.0, 4.0, "drain", "sampling-too-slow", "cluster.engines = 3"),
    ],
)
def test_the_one_that_others_wait_for_is_named(
    trainer_wait: float, sampler_wait: float, in_flight: str, cause: str, change: str
):
    case = case_with(seconds(trainer_wait, sampler_wait), run=run_of(1, in_flight))
    finding = pace.standing_still(case)
    assert finding.severity is Severity.NOTE
    assert (finding.causes[0].name, change in finding.causes[0].change) == (cause, True)
    drained = [one.name for one in finding.causes if one.name == "drained-too-often"]
    assert bool(drained) == (in_flight == "drain")


def test_a_balanced_run_and_a_synchronous_one_are_left_alone():
    balanced = pace.standing_still(case_with(seconds(0.5, 0.5), run=run_of(1)))
    assert balanced.outcome is Outcome.CLEAR, "the long wait of the first step does not count"
    assert "training stands still 5.0% of its time" in balanced.title
    assert "does not apply" in pace.standing_still(case_with({"seconds/step": 1.0})).title


@pytest.mark.parametrize(("bound", "outcome"), [(3, Outcome.CLEAR), (2, Outcome.FOUND), (0, Outcome.FOUND)])
def test_answers_as_old_as_they_were_asked_to_be_are_no_fault(bound: int, outcome: Outcome):
    values = {"staleness/mean": [0.0, 1.0, 2.0] + [2.5] * 17, "mismatch/logprob": 1e-6}
    assert tokens.sampler_mismatch(case_with(values, run=run_of(bound))).outcome is outcome
