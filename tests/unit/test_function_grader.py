"""A user's function as grader: what it may return, and errors that name it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.build import build_grader, build_rubric
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.isolated import IsolatedFunction
from trimtab.rewards.rubric import GraderConfig, RewardConfig
from trimtab.types import Grade, GradeState


def as_grade(returned, name):
    return asyncio.run(FunctionGrader(lambda prompt, rollout: returned, name)(prompt_of(), rollout_of()))


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.bool_(False), 0.0),
        (np.int64(1), 1.0),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (torch.tensor(1), 1.0),
        (torch.tensor(0.5), 0.5),
    ],
)
def test_case_23_numbers_of_any_kind_are_accepted(returned, value):
    assert as_grade(returned, "f").value == value


def test_none_means_it_cannot_be_graded_and_a_grade_is_taken_as_it_is():
    assert as_grade(None, "f").state is GradeState.NOT_GRADABLE
    grade = Grade.of(0.5, parts={"style": 1.0})
    assert as_grade(grade, "f") is grade


@pytest.mark.parametrize("returned", ["1", [1.0], {"score": 1}, np.array([1.0]), torch.ones(1), 1j, b"1"])
def test_case_23_other_types_are_refused_naming_the_function(returned):
    with pytest.raises(TypeError, match="'my_reward'.*one number or bool"):
        as_grade(returned, "my_reward")


@pytest.mark.parametrize("returned", [float("nan"), 1.5, -0.1, float("inf"), np.float32("nan")])
def test_nan_and_numbers_outside_the_range_are_refused(returned):
    with pytest.raises(ValueError, match="'my_reward'"):
        as_grade(returned, "my_reward")


def ask(function):
    return asyncio.run(FunctionGrader(function)(prompt_of(), rollout_of("7")))


def test_plain_and_async_functions_are_called_with_prompt_and_rollout():
    async def later(prompt, rollout):
        await asyncio.sleep(0)
        return rollout.text == prompt.answer

    assert ask(lambda prompt, rollout: rollout.text == prompt.answer).value == 1.0
    assert ask(later).value == 1.0
    assert FunctionGrader(later).name == "later"


def test_exit_is_a_fault_of_the_function_and_not_the_end_of_the_run():
    with pytest.raises(RuntimeError, match="called exit"):
        ask(lambda prompt, rollout: exit(0))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "limit = 3\n"
        "def score(prompt, rollout):\n    return 1.0\n"
        "again = score\n"
        "def wrong_arguments(a, b, c):\n    return 1.0\n"
    )
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    return tmp_path


@pytest.mark.parametrize("isolated", [None, True, False])
def test_a_function_is_loaded_by_path(folder, isolated):
    grader = build_grader(GraderConfig(name="mine.py:score", isolated=isolated), folder)
    assert grader.name == "score"
    assert isinstance(grader, FunctionGrader if isolated is False else IsolatedFunction)
    assert asyncio.run(grader(prompt_of(), rollout_of())).value == 1.0
    assert build_grader(GraderConfig(name=f"{folder}/mine.py:score", label="own")).name == "own"
    assert build_grader(GraderConfig(name="mine.py:again", isolated=isolated), folder).name == "again"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("mine.py:scroe", "did you mean 'score'"),
        ("mine.py:limit", "no function 'limit'"),
        ("none.py:score", "no file"),
        ("broken.py:score", "ModuleNotFoundError"),
        ("mine.py:wrong_arguments", "wrong_arguments"),
        ("mine:score", "path.py:function"),
    ],
)
@pytest.mark.parametrize("isolated", [True, False])
def test_a_function_that_cannot_be_loaded_says_why(folder, place, told, isolated):
    with pytest.raises(SettingError, match=told):
        build_grader(GraderConfig(name=place, isolated=isolated), folder)


def test_options_are_checked_by_name_and_type():
    def build(**config: Any) -> Any:
        return build_grader(GraderConfig(**config))

    assert build(name="answer", options={"marker": "#", "tolerance": 0}).marker == "#"
    assert build(name="format", options={"tags": ["think", "answer"]}).tags == ("think", "answer")
    assert build(name="format", label="form", options={"boxed": True}).name == "form"
    for config, told in (
        ({"name": "anser"}, "did you mean 'answer'"),
        ({"name": "answer", "options": {"markr": "#"}}, "did you mean 'marker'"),
        ({"name": "answer", "options": {"name": "x"}}, "no option 'name'"),
        ({"name": "answer", "options": {"marker": 3}}, "option marker cannot be 3"),
        ({"name": "answer", "options": {"kind": "latex"}}, "option kind cannot be 'latex'"),
        ({"name": "format", "options": {"tags": "think"}}, "option tags cannot be 'think'"),
        ({"name": "x.py:f", "options": {"a": 1}}, "no option 'a'"),
    ):
        with pytest.raises(SettingError, match=told):
            build(**config)


def test_a_rubric_from_its_table():
    rubric = build_rubric(
        RewardConfig(
            graders=(
                GraderConfig(name="answer"),
                GraderConfig(name="format", weight=0.1, options={"boxed": True}),
            ),
            truncated="grade",
        )
    )
    assert [(grader.name, weight) for grader, weight in rubric.graders] == [("answer", 1.0), ("format", 0.1)]
    with pytest.raises(SettingError, match="two graders are named 'answer'"):
        build_rubric(RewardConfig(graders=(GraderConfig(name="answer"), GraderConfig(name="answer"))))
