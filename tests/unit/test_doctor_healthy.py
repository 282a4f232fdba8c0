"""Nothing is found in healthy runs of any algorithm; what is not recorded is never called well."""
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import pytest

from tests.doctor_cases import case_with, healthy_cases, run_tables
from trimtab.doctor.case import Case
from trimtab.doctor.diagnose import diagnose, verdict
from trimtab.doctor.rules import RULES
from trimtab.record.findings import Finding, Outcome
from trimtab.record.history import History

CASES = healthy_cases()


@pytest.mark.parametrize("name", CASES)
def test_a_healthy_run_of_this_algorithm_is_clear(name):
    diagnosis = diagnose(CASES[name])
    assert [(finding.rule, finding.title) for finding in diagnosis.found] == []
    assert verdict(diagnosis).startswith("Nothing wrong was found")


def test_half_of_the_answers_cut_is_normal_for_gspo_and_alarming_for_nobody_else():
    gspo = next(f for f in diagnose(CASES["gspo"]).findings if f.rule == "gspo-clip")
    assert gspo.outcome is Outcome.CLEAR
    assert "normal for GSPO" in gspo.title


@pytest.mark.parametrize("rule", RULES)
def test_without_a_record_no_rule_says_that_all_is_well(rule):
    finding = rule(Case(history=History()))
    assert finding.outcome is Outcome.SKIPPED, finding
    assert finding.missing or "steps" in finding.title


def test_an_empty_run_is_not_called_healthy():
    assert verdict(diagnose(Case(history=History()))).startswith("Nothing can be said")


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_pure_and_have_one_name(rule):
    first, second = (rule(case) for case in (healthy_cases()["dapo"], healthy_cases()["dapo"]))
    assert dataclasses.asdict(first) == dataclasses.asdict(second)
    assert first.rule == rule(Case(history=History())).rule


def test_names_are_unique_and_every_finding_names_a_known_outcome():
    findings: list[Finding] = [rule(CASES["grpo"]) for rule in RULES]
    assert len({finding.rule for finding in findings}) == len(RULES)


def test_few_metrics_of_another_trainer_are_judged_as_far_as_they_go():
    values = {"reward/mean": 0.5, "policy/entropy": 0.3, "length/mean": 40.0}
    diagnosis = diagnose(case_with(values, run={"trainer_state": "trl"}))
    assert diagnosis.found == ()
    assert {"truncation", "gspo-clip", "sampler-mismatch"} <= {one.rule for one in diagnosis.skipped}


def test_an_unknown_algorithm_gives_no_facts_and_no_crash():
    case = case_with({"reward/outcome": 0.5}, run=run_tables("my-own"))
    assert case.setup.parts is None
    assert case.setup.bounded is None
    diagnose(case)
