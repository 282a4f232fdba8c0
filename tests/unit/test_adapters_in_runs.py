"""Foreign functions as graders of a rubric: named by path, isolated or not, with whole groups."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.errors import RunError, SettingError
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric
from trimtab.types import Finish, Grade, Prompt

PLACE = Path(__file__).parents[1] / "foreign_rewards.py"


def rubric_of(function: str, *, isolated: bool = True, timeout: float = 30.0, **options: Any) -> Rubric:
    own = None if isolated else False
    grader = GraderConfig(name=f"{PLACE}:{function}", options=options, isolated=own)
    return build_rubric(RewardConfig(graders=(grader,), timeout=timeout))


def graded(rubric: Rubric, texts: list[str], prompt: Prompt | None = None) -> list[Grade]:
    group = group_of([rollout_of(text, index=i) for i, text in enumerate(texts)], prompt)
    return list(asyncio.run(rubric.grade(group)).grades)


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("function", "options", "meta", "values"),
    [
        ("trl_plain", {}, {"solution": "7"}, [1.0, 0.0]),
        ("trl_object", {}, {}, [1 / 3, 1 / 3]),
        ("compute_score", {}, {"extra_info": {}}, [1.0, 0.0]),
        ("compute_batch", {}, {}, [1.0, 0.0]),
        ("reward_func", {"range": [-0.5, 0.5]}, {}, [1.0, 0.0]),
        ("correct_answer", {}, {}, [1.0, 0.0]),
        ("longest", {}, {}, [1.0, 1.0]),
        ("exact_match", {}, {"answer": "#### 7"}, [1.0, 0.0]),
        ("AdditionTask", {}, {"answer": "#### 7"}, [0.75, 0.0]),
        ("ambiguous", {"adapter": "trl"}, {"answers": "x"}, [1.0, 1.0]),
    ],
)
def test_every_form_runs_unchanged(
    isolated: bool, function: str, options: Any, meta: Any, values: list[float]
):
    rubric = rubric_of(function, isolated=isolated, **options)
    found = graded(rubric, ["#### 7", "#### 8"], prompt_of(**meta))
    assert [grade.value for grade in found] == pytest.approx(values), found


def test_a_batch_function_sees_the_group_once_without_what_is_wrong_unasked():
    group = group_of(
        [
            rollout_of("a", index=0),
            rollout_of("b", index=1, finish=Finish.LENGTH),
            rollout_of("cc", index=2),
            rollout_of("dd", index=3, finish=Finish.ABORT),
        ]
    )
    scored = asyncio.run(rubric_of("longest").grade(group))
    assert [str(grade.state) for grade in scored.grades] == ["wrong", "wrong", "right", "not_gradable"]


def test_cases_24_and_26_one_bad_entry_costs_one_answer_and_an_exception_costs_the_group():
    rubric = rubric_of("mixed_up")
    states = [str(grade.state) for grade in graded(rubric, list("abcdefgh"))]
    failed = "grader_failed"
    assert states == ["right", failed, failed, "not_gradable", "right", failed, "partial", failed]
    rubric = rubric_of("raises")
    grades = graded(rubric, ["a", "b"])
    assert {str(grade.state) for grade in grades} == {failed}
    assert "no such rubric" in grades[0].detail
    group = group_of([rollout_of("a")])
    with pytest.raises(RunError, match="no such rubric"):
        rubric.check([asyncio.run(rubric.grade(group))])
    (grade,) = graded(rubric_of("one_for_all", isolated=False), ["a"])
    assert grade.value == 1.0
    assert "returned 1 reward for 2 answers" in graded(rubric_of("one_for_all"), ["a", "b"])[0].detail
    assert "called exit(3)" in graded(rubric_of("leaves"), ["a"])[0].detail


def test_case_25_a_function_that_hangs_is_ended_within_its_limit():
    began = time.monotonic()
    grades = graded(rubric_of("hangs", timeout=0.5), ["a", "b"])
    assert [str(grade.state) for grade in grades] == ["timeout", "timeout"]
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        ("ambiguous", {}, "can be read as trl .* and verifiers-group"),
        ("unknown", {}, "no known reward function"),
        ("trl_plian", {}, "did you mean 'trl_plain'"),
        ("trl_plain", {"adapter": "tlr"}, "did you mean 'trl'"),
        ("trl_plain", {"range": [1.0, 0.0]}, "low < high"),
        ("trl_plain", {"rnage": [0.0, 1.0]}, "did you mean 'range'"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_run(function: str, options: Any, told: str):
    for isolated in (True, False):
        with pytest.raises(SettingError, match=told):
            rubric_of(function, isolated=isolated, **options)
