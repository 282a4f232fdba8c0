"""The rubric: states of the combination, faults that stay faults, and the stop when grading is broken."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time

import pytest

from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.errors import RunError, SettingError
from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.build import build_grader
from trimtab.rewards.format import FormatMatch
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.grader import SelfLimiting
from trimtab.rewards.rubric import GraderConfig, Rubric, combine
from trimtab.types import Finish, Grade, GradeState


def grader(function, name="own"):
    return FunctionGrader(function, name)


def by_index(*returned, name="own"):
    """Returns, raises or awaits what stands at the rollout's index."""

    async def look_up(prompt, rollout):
        found = returned[rollout.index]
        if isinstance(found, Exception):
            raise found
        if found == "sleep":
            await asyncio.sleep(3600)
        return found

    return grader(look_up, name)


def grades(rubric, count, **kwargs):
    group = group_of([rollout_of(index=i, **kwargs) for i in range(count)])
    scored = asyncio.run(rubric.grade(group))
    return scored, [grade.state.value for grade in scored.grades]


def ungraded(state):
    return Grade(state=state, value=None, detail=f"was {state}")


def test_a_weighted_sum_keeps_every_part():
    grade = combine([("answer", 1.0, Grade.of(1.0)), ("format", 0.25, Grade.of(0.0, detail="no box"))])
    assert (grade.state, grade.value) == (GradeState.PARTIAL, 0.8)
    assert grade.parts == {"answer": 1.0, "format": 0.0}
    assert grade.detail == "format: no box"


@pytest.mark.parametrize("weight", [0.1, 1 / 3, 0.7, 1e-3, 1e6])
def test_all_parts_right_is_right_and_all_wrong_is_wrong_whatever_the_weights(weight):
    names = ("a", "b", "c")
    assert combine([(n, weight, Grade.of(1.0)) for n in names]).state is GradeState.RIGHT
    assert combine([(n, weight, Grade.of(0.0)) for n in names]).state is GradeState.WRONG


def test_one_ungraded_part_leaves_the_whole_answer_ungraded():
    for first, second, expected in (
        (GradeState.NOT_GRADABLE, GradeState.GRADER_FAILED, GradeState.GRADER_FAILED),
        (GradeState.NOT_GRADABLE, GradeState.TIMEOUT, GradeState.TIMEOUT),
        (GradeState.TIMEOUT, GradeState.GRADER_FAILED, GradeState.GRADER_FAILED),
    ):
        asked = [("a", 1.0, Grade.of(1.0)), ("b", 1.0, ungraded(first)), ("c", 0.1, ungraded(second))]
        grade = combine(asked)
        assert (grade.state, grade.value) == (expected, None)
        assert grade.parts == {"a": 1.0}, "what was graded stays visible"
        assert grade.detail == f"was {expected}"


def test_a_grader_of_weight_0_only_watches():
    right = combine([("answer", 1.0, Grade.of(1.0)), ("style", 0.0, Grade.of(0.0))])
    assert right.state is GradeState.RIGHT
    assert right.parts == {"answer": 1.0, "style": 0.0}
    assert (
        combine([("answer", 1.0, Grade.of(1.0)), ("style", 0.0, ungraded(GradeState.TIMEOUT))]).value == 1.0
    )


def test_parts_of_a_functions_own_grade_are_kept_under_its_name():
    grade = combine([("own", 1.0, Grade.of(0.5, parts={"tests": 0.5}))])
    assert grade.parts == {"own": 0.5, "own.tests": 0.5}


def test_truncated_answers_are_wrong_unless_a_setting_says_otherwise():
    graders = [(AnswerMatch(), 1.0), (FormatMatch(boxed=True), 0.5)]
    scored, states = grades(Rubric(graders), 1, text="#### 7", finish=Finish.LENGTH)
    assert states == ["wrong"]
    assert scored.grades[0].parts == {"answer": 0.0, "format": 0.0}
    assert "truncated after 3 tokens" in scored.grades[0].detail
    _, states = grades(
        Rubric([(AnswerMatch(), 1.0)], truncated="grade"), 1, text="#### 7", finish=Finish.LENGTH
    )
    assert states == ["right"]


def test_an_aborted_answer_says_nothing_about_the_policy():
    for policy in ("wrong", "grade"):
        rubric = Rubric([(AnswerMatch(), 1.0)], truncated=policy)
        assert grades(rubric, 1, text="#### 7", finish=Finish.ABORT)[1] == ["not_gradable"]


def test_case_26_one_fault_in_32_is_dropped_and_shown():
    rubric = Rubric([(by_index(*[1.0] * 31, KeyError("column")), 1.0)])
    scored, states = grades(rubric, 32)
    assert states == ["right"] * 31 + ["grader_failed"]
    assert scored.grades[31].detail == "own: KeyError: 'column'"
    assert len(scored.values) == 31
    rubric.check([scored])
    assert rubric.first_traceback is not None
    assert "p#0/31" in rubric.first_traceback
    assert "raise found" in rubric.first_traceback


def test_case_26_all_faults_stop_the_run_with_the_first_traceback():
    rubric = Rubric([(by_index(KeyError("first"), ValueError("second")), 1.0)], max_ungraded_share=1.0)
    scored, states = grades(rubric, 2)
    assert states == ["grader_failed", "grader_failed"]
    with pytest.raises(
        RunError, match=r"(?s)2 of 2 answers.*2 grader_failed.*Traceback.*KeyError: 'first'"
    ) as told:
        rubric.check([scored])
    assert "second" not in str(told.value)


def test_case_25_an_answer_that_hangs_times_out_and_the_others_are_kept():
    rubric = Rubric([(by_index(1.0, "sleep", 0.0), 1.0)], timeout=0.05)
    started = time.perf_counter()
    scored, states = grades(rubric, 3)
    assert states == ["right", "timeout", "wrong"]
    assert time.perf_counter() - started < 2.0
    assert scored.grades[1].detail == "own: no grade of p#0/1 (prompt p) within 0.05 s"


def test_a_grader_that_limits_itself_is_not_timed_out_for_its_queue():
    class OneAtATime:
        name, limits_itself = "queued", True

        def __init__(self):
            self.turn = asyncio.Semaphore(1)

        async def __call__(self, prompt, rollout):
            async with self.turn:
                await asyncio.sleep(0.03)
            return Grade.of(1.0)

    _, states = grades(Rubric([(OneAtATime(), 1.0)], timeout=0.06), 6)
    assert states == ["right"] * 6
    assert isinstance(build_grader(GraderConfig(name="code")), SelfLimiting)
    assert isinstance(build_grader(GraderConfig(name="mathematics")), SelfLimiting)
    assert not isinstance(build_grader(GraderConfig(name="answer")), SelfLimiting)


def test_a_whole_group_is_graded_concurrently():
    async def slow(prompt, rollout):
        await asyncio.sleep(0.1)
        return 1.0

    started = time.perf_counter()
    grades(Rubric([(grader(slow, "a"), 1.0), (grader(slow, "b"), 1.0)]), 16)
    assert time.perf_counter() - started < 1.0


def test_case_24_none_is_no_value():
    scored, states = grades(Rubric([(by_index(None, 0.2, 0.4, 0.6), 1.0)]), 4)
    assert states == ["not_gradable", "partial", "partial", "partial"]
    assert scored.values.tolist() == [0.2, 0.4, 0.6]


def test_nan_and_wrong_types_fail_the_grader_and_name_it():
    scored, states = grades(Rubric([(by_index(float("nan"), "1", [1.0]), 1.0)]), 3)
    assert states == ["grader_failed"] * 3
    assert all("'own'" in grade.detail for grade in scored.grades)


def test_a_share_of_ungraded_answers_stops_the_run():
    scored, _ = grades(Rubric([(by_index(None, None, 1.0, 1.0), 1.0)]), 4)
    Rubric([(AnswerMatch(), 1.0)], max_ungraded_share=0.5).check([scored])
    with pytest.raises(RunError, match=r"2 of 4.*2 not_gradable.*max_ungraded_share = 0.4"):
        Rubric([(AnswerMatch(), 1.0)], max_ungraded_share=0.4).check([scored])
    Rubric([(AnswerMatch(), 1.0)]).check([])


def test_cancelling_a_run_is_not_a_fault_of_the_grader():
    async def cancelled():
        rubric = Rubric([(by_index("sleep"), 1.0)])
        task = asyncio.create_task(rubric.grade(group_of([rollout_of()])))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rubric.first_traceback is None

    asyncio.run(cancelled())


def test_self_check_and_votes_come_from_the_graders_that_can():
    rubric = Rubric([(by_index(1.0), 1.0), (AnswerMatch(), 1.0)])
    bad = rubric.self_check(
        [prompt_of("x", answer=""), prompt_of("y", answer="7"), prompt_of("z", answer=None)]
    )
    assert [(b.prompt_id, b.reason.split(":")[0]) for b in bad] == [("x", "answer"), ("z", "answer")]
    assert rubric.read_answer(prompt_of(), rollout_of("#### 7.0")) == "7"
    assert rubric.read_answer(prompt_of(), rollout_of("#### 7", finish=Finish.LENGTH)) is None
    assert Rubric([(by_index(1.0), 1.0)]).read_answer(prompt_of(), rollout_of("#### 7")) is None


@pytest.mark.parametrize(
    ("graders", "options"),
    [
        ([], {}),
        ([(AnswerMatch(), 0.0)], {}),
        ([(AnswerMatch(), -1.0)], {}),
        ([(AnswerMatch(), float("nan"))], {}),
        ([(AnswerMatch(), 1.0), (AnswerMatch(), 1.0)], {}),
        ([(AnswerMatch(), 1.0)], {"truncated": "drop"}),
        ([(AnswerMatch(), 1.0)], {"max_ungraded_share": 1.5}),
        ([(AnswerMatch(), 1.0)], {"timeout": 0}),
    ],
)
def test_impossible_settings_are_refused(graders, options):
    with pytest.raises(SettingError):
        Rubric(graders, **options)
