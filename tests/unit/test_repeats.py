"""The same question is worked out once; faults and cancelled questions are nobody's grade."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards import code
from trimtab.rewards.code import CodeTests
from trimtab.rewards.repeats import Repeats
from trimtab.types import Grade

TESTS = '[{"stdin": "2", "stdout": "4"}]'
DOUBLE = "```python\nprint(int(input()) * 2)\n```"


class Work:
    """Counts how often it is done. ``faults``: how often it fails before it succeeds."""

    def __init__(self, faults: int = 0) -> None:
        self.times = 0
        self.faults = faults

    async def __call__(self) -> Grade:
        self.times += 1
        number = self.times
        await asyncio.sleep(0.01)
        if number <= self.faults:
            raise RuntimeError(f"fault {number}")
        return Grade.of(1.0, detail=f"work {number}")


def test_equal_questions_at_the_same_time_and_later_are_one_work():
    repeats, work = Repeats(8), Work()

    async def ask() -> list[Grade]:
        return await asyncio.gather(*(repeats.grade(("a", "b"), work) for _ in range(5)))

    grades = asyncio.run(ask()) + asyncio.run(ask())
    assert work.times == 1
    assert {grade.detail for grade in grades} == {"work 1"}


def test_questions_differ_by_each_of_their_parts():
    repeats, work = Repeats(8), Work()

    async def ask() -> None:
        for asked in (("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("a", "b")):
            await repeats.grade(asked, work)

    asyncio.run(ask())
    assert work.times == 4


def test_a_fault_is_raised_to_its_asker_and_the_next_asks_anew():
    repeats, work = Repeats(8), Work(faults=1)

    async def ask() -> list[Grade | BaseException]:
        return await asyncio.gather(*(repeats.grade(("a",), work) for _ in range(3)), return_exceptions=True)

    first, *others = asyncio.run(ask())
    assert isinstance(first, RuntimeError)
    assert [grade.detail for grade in others if isinstance(grade, Grade)] == ["work 2"] * 2
    assert work.times == 2


def test_whoever_waits_for_a_cancelled_question_asks_it():
    repeats, work = Repeats(8), Work()

    async def ask() -> Grade:
        first = asyncio.create_task(repeats.grade(("a",), work))
        second = asyncio.create_task(repeats.grade(("a",), work))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(ask()).detail == "work 2"


def test_the_oldest_is_forgotten_and_none_is_kept_where_none_is_asked_for():
    async def times(size: int, asked: str) -> int:
        repeats, work = Repeats(size), Work()
        for letter in asked:
            await repeats.grade((letter,), work)
        return work.times

    assert asyncio.run(times(2, "abab")) == 2
    assert asyncio.run(times(2, "abca")) == 4
    assert asyncio.run(times(0, "aa")) == 2


@pytest.mark.parametrize(("remembered", "runs"), [(16, 1), (0, 3)])
def test_the_code_grader_runs_a_program_once_on_the_same_tests(monkeypatch, remembered, runs):
    ran: list[str] = []
    run = code.run_program
    monkeypatch.setattr(
        code, "run_program", lambda *given, **more: ran.append(given[1]) or run(*given, **more)
    )
    grader = CodeTests(remembered=remembered)

    async def ask() -> list[Grade]:
        asked = [grader(prompt_of(answer=TESTS), rollout_of(DOUBLE, index=k)) for k in range(3)]
        return await asyncio.gather(*asked)

    assert [grade.value for grade in asyncio.run(ask())] == [1.0] * 3
    assert len(ran) == runs
    other = asyncio.run(grader(prompt_of(answer='[{"stdin": "2", "stdout": "5"}]'), rollout_of(DOUBLE)))
    assert other.value == 0.0
    with pytest.raises(SettingError, match="remembered must be >= 0"):
        CodeTests(remembered=-1)
