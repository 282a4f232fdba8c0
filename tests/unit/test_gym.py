"""Tasks of reasoning-gym: rows, the scorer as a grader, and what a scorer is never shown."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.data.prompts import DataConfig
from trimtab.data.sources import task_rows
from trimtab.data.tasks import gym as gym_tasks
from trimtab.data.tasks.gym import gym_rows
from trimtab.data.tasks.task import split_of
from trimtab.errors import DataError, SettingError
from trimtab.rewards.gym import GymScore
from trimtab.rewards.rubric import Rubric
from trimtab.types import Grade, GradeState, Prompt, ScoredGroup


@pytest.fixture
def gym() -> ModuleType:
    return pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")


def entries_here(dataset: str, settings: Any, seed: int, size: int) -> Iterator[dict[str, Any]]:
    """What ``_entries`` gives, drawn in this process: starting one takes seconds."""
    from trimtab.data.tasks.gym_drawing import lines

    request = {"dataset": dataset, "settings": dict(settings), "seed": seed, "size": size}
    return (gym_tasks._entry(dataset, line) for line in lines(request))


@pytest.fixture
def here(gym: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_tasks, "_entries", entries_here)


@lru_cache
def prompts_of(task: str) -> list[Prompt]:
    """Four prompts of ``gym:NAME``, drawn here."""
    name = task.removeprefix("gym:")
    entries = list(islice(entries_here(name, {}, 0, 4), 4))
    rows = [
        {"id": f"{name}-{number}", "prompt": entry["question"], "answer": entry["answer"],
         "gym": {"dataset": name, "settings": {}, **entry}}
        for number, entry in enumerate(entries)
    ]  # fmt: skip
    nothing = np.zeros(0, dtype=np.int64)
    return [
        Prompt(
            id=row["id"],
            token_ids=nothing,
            text=row["prompt"],
            task=task,
            answer=row.get("answer"),
            meta={"gym": row["gym"]},
        )
        for row in rows
    ]


def graded(prompt: Prompt, response: str, **options: Any) -> Grade:
    rubric = Rubric([(GymScore(**options), 1.0)])
    scored: ScoredGroup = asyncio.run(
        rubric.grade(group_of([rollout_of(response, prompt=prompt.id)], prompt))
    )
    return scored.grades[0]


def test_without_reasoning_gym_every_way_to_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(SettingError, match=r"data.task 'gym:countdown': .* pip install \"trimtab\[gym\]\""):
        task_rows("gym:countdown", "train", 1, 0)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "reasoning_gym" else real(name)
    )
    with pytest.raises(SettingError, match="needs reasoning-gym; pip install"):
        GymScore()


def test_settings_that_have_no_task_are_refused():
    with pytest.raises(SettingError, match="data.task_settings are for tasks gym:NAME; 'sums' has none"):
        task_rows("sums", "train", 1, 0, {"terms": 3})
    with pytest.raises(SettingError, match="belong to data.task, and the data are files"):
        DataConfig(files=("rows.jsonl",), task_settings={"a": 1})
    with pytest.raises(SettingError, match="tasks of reasoning-gym are gym:NAME"):
        task_rows("countdown", "train", 1, 0)


@pytest.mark.usefixtures("here")
def test_rows_are_the_same_for_the_same_arguments_and_splits_never_meet():
    settings = {"min_terms": 2, "max_terms": 2, "max_digits": 1}
    train, again, held_out = (
        list(gym_rows("basic_arithmetic", settings, split, 30, seed))
        for split, seed in (("train", 0), ("train", 0), ("held_out", 1))
    )
    assert again == train
    assert all(split_of(row["prompt"]) == "train" for row in train)
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in held_out)
    assert len({row["prompt"] for row in train}) == 30
    assert train[0]["gym"].keys() == {"dataset", "settings", "question", "answer", "metadata"}


@pytest.mark.usefixtures("gym")
def test_rows_do_not_depend_on_the_seed_of_python_s_hashes(monkeypatch: pytest.MonkeyPatch):
    drawn = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        drawn.append(list(gym_rows("polynomial_multiplication", {}, "train", 3, 0)))
    assert drawn[0] == drawn[1]


@pytest.mark.usefixtures("gym")
@pytest.mark.parametrize(
    ("task", "settings", "told"),
    [
        ("gym:countdown", {"min_number": 3}, "refuses these settings"),
        ("gym:countdown", {"seed": 3}, "cannot set 'seed'"),
    ],
)
def test_what_reasoning_gym_does_not_know_is_told(task: str, settings: dict[str, Any], told: str):
    with pytest.raises(SettingError, match=told):
        task_rows(task, "train", 1, 0, settings)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("task", "told"),
    [("gym:countdwon", "did you mean 'countdown'"), ("gym:composite", "no dataset 'composite'")],
)
def test_a_dataset_that_is_not_there_is_told(task: str, told: str):
    with pytest.raises(SettingError, match=told):
        task_rows(task, "train", 1, 0)


@pytest.mark.usefixtures("here")
def test_too_few_questions_are_told():
    settings = {
        "min_terms": 2,
        "max_terms": 2,
        "max_digits": 1,
        "operators": ["+"],
        "allow_parentheses": False,
    }
    with pytest.raises(DataError, match=r"about \d+ different questions in its train split"):
        list(gym_rows("basic_arithmetic", {**settings, "allow_negation": False}, "train", 200, 0))


@pytest.mark.usefixtures("gym")
def test_partial_credit_is_wrong_below_the_threshold_and_stays_visible():
    prompt = prompts_of("gym:countdown")[0]
    right = graded(prompt, f"So.\n<answer>{prompt.answer}</answer>")
    assert (right.state, right.parts) == (GradeState.RIGHT, {"gym": 1.0, "gym.score": 1.0})
    wrong = graded(prompt, "<answer>1 + 1</answer>")
    assert (wrong.state, wrong.parts) == (GradeState.WRONG, {"gym": 0.0, "gym.score": 0.05})
    kept = graded(prompt, "<answer>1 + 1</answer>", partial=True)
    assert (kept.state, kept.value) == (GradeState.PARTIAL, 0.05)
    assert graded(prompt, "<answer>1 + 1</answer>", threshold=0.05).value == 1.0
    assert graded(prompt, f"It is\n{prompt.answer}").value == 0.0
    assert graded(prompt, str(prompt.answer)).value == 1.0
    assert graded(prompt, f"Result: {prompt.answer}", marker="Result:").value == 1.0


@pytest.mark.usefixtures("gym")
def test_dynamic_sampling_sees_uniform_groups_of_wrong_answers():
    prompt = prompts_of("gym:countdown")[0]
    texts = ["<answer>1 + 1</answer>", "<answer>no</answer>", "<answer></answer>", "I give\nup"]
    group = group_of([rollout_of(text, prompt=prompt.id, index=i) for i, text in enumerate(texts)], prompt)
    assert asyncio.run(Rubric([(GymScore(), 1.0)]).grade(group)).is_uniform
    assert not asyncio.run(Rubric([(GymScore(partial=True), 1.0)]).grade(group)).is_uniform


@pytest.mark.usefixtures("gym")
@pytest.mark.parametrize(
    "task", ["countdown", "polynomial_multiplication", "simple_integration", "n_queens", "arc_agi"]
)
def test_gold_answers_grade_as_right(task: str):
    prompts = prompts_of(f"gym:{task}")
    assert GymScore(timeout=20.0).self_check(prompts) == []
    assert graded(prompts[0], f"<answer>{prompts[0].answer}</answer>", timeout=20.0).value == 1.0


@pytest.mark.usefixtures("gym")
def test_self_check_lists_golds_that_are_not_what_the_gym_says_and_prompts_of_other_tasks():
    one, other = prompts_of("gym:basic_arithmetic")[:2]
    spoilt = Prompt(
        id="spoilt", token_ids=one.token_ids, text=one.text, task=one.task, answer="wrong", meta=one.meta
    )
    found = GymScore().self_check([other, spoilt, prompt_of("plain")])
    assert sorted(bad.prompt_id for bad in found) == ["plain", "spoilt"]
    assert "the scorer gives its own answer 0" in next(
        bad.reason for bad in found if bad.prompt_id == "spoilt"
    )
    grade = graded(prompt_of("plain"), "<answer>7</answer>")
    assert (grade.state, "not of a task gym:NAME" in grade.detail) == (GradeState.NOT_GRADABLE, True)


@pytest.mark.usefixtures("gym")
def test_a_scorer_that_evaluates_is_never_shown_code(tmp_path: Any):
    trace = tmp_path / "ran"
    attacks = [
        f"open({str(trace)!r}, 'w')",
        f"__import__('os').system('touch {trace}')",
        f"[c for c in [open({str(trace)!r}, 'w')]]",
        f"exec('open({str(trace)!r}, chr(119))')",
        "().__class__.__base__.__subclasses__()",
        "9**9**9**9",
        "9**(9**9)",
        "1" * 3000,
    ]
    for task in ("countdown", "puzzle24", "polynomial_multiplication", "n_queens", "spiral_matrix"):
        prompt = prompts_of(f"gym:{task}")[0]
        for attack in attacks:
            grade = graded(prompt, f"<answer>{attack}</answer>")
            assert grade.state is GradeState.WRONG, (task, attack, grade.detail)
    assert not trace.exists()


@pytest.mark.usefixtures("gym")
def test_every_scorer_that_may_evaluate_is_known_and_an_unknown_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    import inspect

    from reasoning_gym.factory import DATASETS

    from trimtab.rewards import gym_scoring

    for name, (dataset, _) in DATASETS.items():
        if name == "composite":
            continue
        module = inspect.getmodule(dataset)
        assert module is not None
        if gym_scoring._EVALUATES.search(inspect.getsource(module)):
            assert name in gym_scoring.LITERALS | gym_scoring.FORMULAS | gym_scoring.HARMLESS, name
    monkeypatch.setattr(gym_scoring, "FORMULAS", frozenset())
    gym_scoring._trusted.cache_clear()
    with pytest.raises(gym_scoring.UntrustedScorerError, match="gym:countdown may evaluate answers as code"):
        gym_scoring._trusted("countdown")
    gym_scoring._trusted.cache_clear()


@pytest.mark.usefixtures("gym")
@pytest.mark.parametrize(
    ("dataset", "answer", "refused"),
    [
        ("countdown", "(1 + 2) * 3 - 4/5", False),
        ("countdown", "3**2", False),
        ("countdown", "x.y", False),
        ("countdown", "f(2)", False),
        ("countdown", "sqrt(2)", False),
        ("countdown", "open(2)", True),
        ("countdown", "'a'", True),
        ("countdown", "_", True),
        ("countdown", "2**1000000", True),
        ("simple_integration", "x**(1/2)/2 + C", False),
        ("spiral_matrix", "[1, 2, [3]]", False),
        ("spiral_matrix", "1 2 3", False),
        ("spiral_matrix", "[f(1)]", True),
        ("spiral_matrix", "a.b", True),
        ("spiral_matrix", "lambda: 1", True),
        ("sudoku", "f(1)", False),
    ],
)
def test_what_reaches_a_scorer_can_only_be_a_value(dataset: str, answer: str, refused: bool):
    from trimtab.rewards.gym_scoring import refusal

    assert bool(refusal(dataset, answer)) is refused


@pytest.mark.parametrize(
    "options",
    [{"threshold": 0.0}, {"threshold": 1.5}, {"timeout": 0.0}, {"marker": " "}],
)
def test_impossible_settings_are_refused(options: dict[str, Any]):
    with pytest.raises(SettingError):
        GymScore(**options)
