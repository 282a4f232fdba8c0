"""The golden cases, and that the checker can fail."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from trimtab.algorithms.golden import check_golden
from trimtab.errors import DataError

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("name", "count", "quantities"),
    [
        ("objectives.json", 110, {"advantages", "loss", "grad"}),
        ("critic.json", 24, {"advantages", "returns", "value_loss", "value_grad"}),
    ],
)
def test_every_golden_case_within_1e_9(name, count, quantities):
    report = check_golden(DATA / name)
    assert len(report.cases) == count
    assert set(report.errors) == quantities
    assert max(report.errors.values()) <= 1e-9
    assert report.ok
    assert "all within 1e-09" in str(report)


@pytest.fixture
def objective_cases():
    return json.loads((DATA / "objectives.json").read_text())["cases"]


@pytest.fixture
def critic_cases():
    return json.loads((DATA / "critic.json").read_text())["cases"]


def written(tmp_path, cases) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"dtype": "float64", "cases": cases}))
    return path


def test_a_wrong_number_is_found_and_named(tmp_path, objective_cases):
    for field, change in (("loss", 2e-9), ("grad", None), ("advantages", None)):
        cases = copy.deepcopy(objective_cases[:3])
        expected = cases[1]["expected"]
        if field == "loss":
            expected["loss"] += change
        elif field == "grad":
            expected["grad"][0][0] += 1e-6
        else:
            expected["advantages"][0] += 1e-6
        report = check_golden(written(tmp_path, cases))
        assert not report.ok
        assert [case.name for case in report.failed] == [cases[1]["name"]]
        assert f"{cases[1]['name']}: {field}" in str(report)


def test_a_wrong_value_gradient_is_found(tmp_path, critic_cases):
    critic_cases[2]["expected"]["value_grad"][0] -= 1e-8
    assert not check_golden(written(tmp_path, critic_cases)).ok


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda case: case.pop("expected"), "field expected is missing"),
        (lambda case: case["objective"].pop("ratio"), "field objective.ratio is missing"),
        (
            lambda case: case["objective"].update(ratio="tokens"),
            "field objective.ratio is 'tokens' (did you mean 'token'?)",
        ),
        (
            lambda case: case["objective"]["surrogate"].update(kind="klip"),
            "field objective.surrogate.kind is 'klip'",
        ),
        (lambda case: case["objective"].update(aggregation="mean"), "unknown aggregate 'mean'"),
        (
            lambda case: case["objective"]["surrogate"].update(kind="soft-gate", tau_pos=0.0, tau_neg=1.0),
            "tau_pos > 0",
        ),
        (lambda case: case["responses"][1].update(logp=[0.0] * 99), "field responses[1].mask has"),
        (
            lambda case: case["responses"][0].update(reward="1"),
            "field responses[0].reward must be a finite number, got '1'",
        ),
        (
            lambda case: case["responses"][0]["mask"].__setitem__(0, 1),
            "field responses[0].mask[0] must be true or false",
        ),
        (lambda case: case["expected"]["grad"].pop(), "field expected.grad has"),
        (lambda case: case.update(responses=3), "field responses must be a list"),
    ],
)
def test_a_malformed_case_names_case_and_field(tmp_path, objective_cases, spoil, message):
    cases = objective_cases[:2]
    spoil(cases[1])
    with pytest.raises(DataError) as caught:
        check_golden(written(tmp_path, cases))
    assert cases[1]["name"] in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": []}', '{"cases": [1]}', '{"cases": 1}', "{"])
def test_what_is_no_golden_file_is_an_error_with_the_path(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"cases\.json"):
        check_golden(path)


def test_a_missing_file_and_a_mixed_one_are_errors(tmp_path, objective_cases, critic_cases):
    with pytest.raises(DataError, match="nowhere"):
        check_golden(tmp_path / "nowhere.json")
    with pytest.raises(DataError, match="split it"):
        check_golden(written(tmp_path, [objective_cases[0], critic_cases[0]]))
