"""The task of small programs: right answers pass their tests, the demonstrator's typical faults do not."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import io
import json
import random
from contextlib import redirect_stdout
from itertools import count
from typing import Any

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.data.tasks import TASKS, Question
from trimtab.data.tasks.programs import Chain, Habits, Items, Loop, asked_in, demonstrate, solution
from trimtab.rewards.blocks import last_program
from trimtab.rewards.code import CodeTests
from trimtab.types import GradeState

TASK = TASKS["programs"]
FORGETFUL = Habits(1, 1, 1, 0, 0, 0, 0)
QUESTIONS = list(TASK.questions("train", 600, seed=0))


def program_of(response: str) -> str:
    program, fault = last_program(response)
    assert program is not None, fault
    return program


def passes(program: str, answer: str) -> bool:
    """What the grader would say, without a sandbox: for programs that this repository wrote itself."""
    for test in json.loads(answer):
        names: dict[str, Any] = {"input": iter(test.get("stdin", "").splitlines()).__next__}
        with redirect_stdout(io.StringIO()) as printed:
            exec(program, names)
        if "assert" in test and not eval(test["assert"], names):
            return False
        if "stdout" in test and printed.getvalue() != test["stdout"]:
            return False
    return True


def test_the_solution_of_every_question_passes_its_tests():
    assert all(passes(program_of(solution(q.prompt)), q.answer) for q in QUESTIONS)


def test_what_the_demonstrator_forgets_is_found_by_the_tests():
    wrong = 0
    for question in QUESTIONS:
        forgetful = demonstrate(question, random.Random(0), FORGETFUL).response
        if forgetful != solution(question.prompt):
            wrong += 1
            assert not passes(program_of(forgetful), question.answer), (question, forgetful)
    assert wrong > 0.5 * len(QUESTIONS)


def test_no_fixed_output_passes():
    for question in QUESTIONS:
        tests = json.loads(question.answer)
        outputs = {test.get("stdout") or test["assert"].partition(" == ")[2] for test in tests}
        assert len(outputs) >= 2, question


def test_a_prompt_says_all_that_its_question_is():
    kinds = {type(asked_in(q.prompt)) for q in QUESTIONS}
    assert kinds == {Chain, Loop, Items}
    assert all(asked_in(q.prompt).prompt == q.prompt for q in QUESTIONS)
    with pytest.raises(ValueError, match="no question of the task programs"):
        asked_in("read n, print it\n")


def test_tests_depend_on_the_question_alone():
    again = {q.prompt: q.answer for q in TASK.questions("train", 600, seed=1)}
    shared = [q for q in QUESTIONS if q.prompt in again]
    assert shared
    assert all(again[q.prompt] == q.answer for q in shared)


def test_the_solutions_are_short_programs_in_a_closed_block():
    for prompt, program in (
        ("read a b, print a plus 3, times b, minus 4\n", "a,b=map(int,input().split())\nprint((a+3)*b-4)\n"),
        ("read a b, print b times 3, plus a\n", "a,b=map(int,input().split())\nprint(b*3+a)\n"),
        (
            "read n, print sum of i*i for i from 3 to n, i odd\n",
            "n=int(input())\nprint(sum(i*i for i in range(3,n+1) if i%2==1))\n",
        ),
        (
            "read n, print sum of i for i from 0 below n\n",
            "n=int(input())\nprint(sum(i for i in range(0,n)))\n",
        ),
        (
            "f(x): list of v+2 for v in x, v at most 4\n",
            "def f(x):\n return [v+2 for v in x if v<=4]\n",
        ),
        (
            "f(x): sum of v for v in x, v multiple of 3\n",
            "def f(x):\n return sum(v for v in x if v%3==0)\n",
        ),
    ):
        assert solution(prompt) == f"```python\n{program}```"


def test_the_demonstrator_is_mediocre():
    shown = list(TASK.demonstrations(3000, seed=0))
    answers = [asked_in(s.prompt).tests(random.Random(f"programs|tests|{s.prompt}")) for s in shown]
    right = closed = 0
    for one, tests in zip(shown, answers, strict=True):
        program = last_program(one.response)[0] if one.ended else None
        closed += program is not None
        right += program is not None and passes(program, json.dumps(tests))
    assert 0.40 < right / len(shown) < 0.55
    assert 0.80 < closed / len(shown) < 0.95
    assert 0.04 < sum(not s.ended for s in shown) / len(shown) < 0.10


def test_the_sandbox_says_the_same_of_right_and_of_typical_wrong_programs():
    grader, number = CodeTests(), count()

    async def graded(question: Question, response: str) -> GradeState:
        rollout = rollout_of(response, index=next(number))
        return (await grader(prompt_of(answer=question.answer, text=question.prompt), rollout)).state

    async def both_graded(question: Question) -> tuple[GradeState, GradeState]:
        forgetful = demonstrate(question, random.Random(0), FORGETFUL).response
        return await graded(question, solution(question.prompt)), await graded(question, forgetful)

    few = {type(asked_in(q.prompt)): q for q in QUESTIONS if _forgets(q)}
    assert len(few) == 3
    for question in few.values():
        assert asyncio.run(both_graded(question)) == (GradeState.RIGHT, GradeState.WRONG)


def _forgets(question: Question) -> bool:
    return demonstrate(question, random.Random(0), FORGETFUL).response != solution(question.prompt)
