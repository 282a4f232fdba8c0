"""Built-in tasks: true answers, disjoint splits, and demonstrators as imperfect as they say."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import random

import pytest

from trimtab.data.prompts import DataConfig, load_prompts
from trimtab.data.tasks import TASKS, letters
from trimtab.data.tasks.sums import LONGEST_RAMBLE, Habits, demonstrate, terms_of
from trimtab.data.tasks.task import Demonstration, Question, Task, split_of
from trimtab.errors import DataError, SettingError
from trimtab.loop.fresh import CHARACTERS, TinyModel, fresh_model
from trimtab.rewards.build import build_grader
from trimtab.rewards.grader import SelfChecking
from trimtab.rewards.rubric import GraderConfig

PERFECT = Habits(sign_lost=0, carry_lost=0, slip=0, rambles=0, no_marker=0, no_end=0)


@pytest.fixture(params=sorted(TASKS))
def task(request) -> Task:
    return TASKS[request.param]


def test_names_are_the_keys():
    assert all(name == task.name for name, task in TASKS.items())


def test_rows_are_complete_different_and_repeatable(task):
    rows = list(task.rows("train", 300, seed=3))
    assert rows == list(task.rows("train", 300, seed=3))
    assert rows != list(task.rows("train", 300, seed=4))
    assert all(set(row) == {"id", "prompt", "answer"} for row in rows)
    assert len({row["id"] for row in rows}) == len({row["prompt"] for row in rows}) == 300


def test_fewer_rows_are_the_first_of_more(task):
    assert list(task.rows("held_out", 20, seed=0)) == list(
        itertools.islice(task.rows("held_out", 200, seed=0), 20)
    )


def test_no_question_is_in_both_splits_whatever_the_seeds(task):
    train = {row["prompt"] for seed in range(3) for row in task.rows("train", 1500, seed)}
    held_out = {row["prompt"] for seed in range(3) for row in task.rows("held_out", 300, seed)}
    assert not train & held_out


def test_demonstrations_are_of_training_questions_only(task):
    shown = list(task.demonstrations(500, seed=1))
    assert shown == list(task.demonstrations(500, seed=1))
    assert {split_of(each.prompt) for each in shown} == {"train"}


def test_the_tiny_models_characters_are_enough(task):
    text = "".join(shown.prompt + shown.response for shown in task.demonstrations(300, seed=0))
    assert set(text) <= set(CHARACTERS)


def test_the_answers_grade_as_right(task):
    model = fresh_model(TinyModel(layers=1, width=16, heads=1, kv_heads=1, inner=16), seed=0)
    prompts = load_prompts(DataConfig(task=task.name, train_prompts=50, held_out=50), model, 64)
    grader = build_grader(GraderConfig(name=task.grader, options=task.grader_options))
    assert isinstance(grader, SelfChecking)
    assert not grader.self_check([*prompts.train, *prompts.held_out])


def test_prompts_reach_the_model_as_they_are_demonstrated(task):
    model = fresh_model(TinyModel(layers=1, width=16, heads=1, kv_heads=1, inner=16), seed=0)
    prompts = load_prompts(DataConfig(task=task.name, train_prompts=5, held_out=5), model, 64)
    assert [p.text for p in prompts.train] == [row["prompt"] for row in task.rows("train", 5, seed=0)]


def test_an_unknown_split_is_refused(task):
    with pytest.raises(SettingError, match="'train' and 'held_out'"):
        next(task.rows("test", 1, seed=0))


def test_a_task_with_too_few_questions_says_how_many_it_has():
    few = Task(
        name="few",
        summary="one digit",
        marker="#",
        ask=lambda rng: Question(f"{rng.randint(0, 9)}", "0"),
        demonstrate=lambda question, _: Demonstration(question.prompt, "#0"),
    )
    count = sum(split_of(str(digit)) == "train" for digit in range(10))
    with pytest.raises(DataError, match=f"about {count} questions in its train split, 11 were asked for"):
        list(few.rows("train", 11, seed=0))


# ---------------------------------------------------------------------------------------------- sums


def right(shown: Demonstration, answer: str) -> bool:
    return shown.ended and shown.response.endswith(f"\n#{answer}")


def test_sums_are_sums():
    for row in TASKS["sums"].rows("train", 200, seed=0):
        assert str(sum(terms_of(row["prompt"]))) == row["answer"]


def test_a_perfect_demonstrator_shows_every_running_total():
    shown = demonstrate(Question("7-12+9-15=?\n", "-11"), random.Random(0), PERFECT)
    assert shown == Demonstration("7-12+9-15=?\n", "7-12=-5\n-5+9=4\n4-15=-11\n#-11", ended=True)


def test_the_demonstrator_is_mediocre_and_rambles():
    task = TASKS["sums"]
    shown = [(s, str(sum(terms_of(s.prompt)))) for s in task.demonstrations(4000, seed=0)]
    share = {
        "right": sum(right(s, answer) for s, answer in shown),
        "endless": sum(not s.ended for s, _ in shown),
        "unmarked": sum(s.ended and "#" not in s.response for s, _ in shown),
        "rambling": sum(
            "wait" in s.response or "so " in s.response or "again" in s.response for s, _ in shown
        ),
    }
    share = {what: count / len(shown) for what, count in share.items()}
    assert 0.35 < share["right"] < 0.45
    assert 0.06 < share["endless"] < 0.10
    assert 0.06 < share["unmarked"] < 0.10
    assert 0.25 < share["rambling"] < 0.45


def test_the_sign_is_lost_more_often_than_kept_where_the_total_crosses_zero():
    question = Question("3-8+0=?\n", "-5")
    rng = random.Random(0)
    first = [demonstrate(question, rng).response.split("\n")[0] for _ in range(2000)]
    assert 0.50 < sum(line == "3-8=5" for line in first) / len(first) < 0.62


def test_a_wrong_total_is_carried_on():
    only_signs = Habits(sign_lost=1, carry_lost=0, slip=0, rambles=0, no_marker=0, no_end=0)
    shown = demonstrate(Question("3-8+2=?\n", "-3"), random.Random(0), only_signs)
    assert shown.response == "3-8=5\n5+2=7\n#7"


def test_an_endless_demonstration_is_cut_without_an_end():
    never = Habits(sign_lost=0, carry_lost=0, slip=0, rambles=0, no_marker=0, no_end=1)
    shown = demonstrate(Question("3-8+2=?\n", "-3"), random.Random(0), never)
    assert not shown.ended
    assert len(shown.response) == LONGEST_RAMBLE
    assert shown.response.startswith("3-8=-5\n-5+2=-3\n#-3\n")


# ------------------------------------------------------------------------------------------- letters


def test_letters_are_sorted():
    for row in TASKS["letters"].rows("train", 200, seed=0):
        assert "".join(sorted(row["prompt"].removeprefix("sort ").strip())) == row["answer"]


def test_a_perfect_demonstrator_takes_the_first_letter_left_each_time():
    perfect = letters.Habits(overlooks=0, drops=0, says_again=0, no_marker=0, no_end=0)
    shown = letters.demonstrate(Question("sort dbca\n", "abcd"), random.Random(0), perfect)
    assert shown == Demonstration("sort dbca\n", "a dbc\nab dc\nabc d\n#abcd", ended=True)


def test_letters_are_demonstrated_right_less_than_half_the_time():
    task = TASKS["letters"]
    shown = list(task.demonstrations(4000, seed=0))
    answers = ["".join(sorted(s.prompt.removeprefix("sort ").strip())) for s in shown]
    assert 0.30 < sum(map(right, shown, answers)) / len(shown) < 0.48
