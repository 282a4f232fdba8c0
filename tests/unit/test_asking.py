"""Retries by class of fault, the bound on what runs at once, and the time that grading is charged for."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time

import pytest

from tests.handmade import group_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.asking import LONGEST_PAUSE, RetryConfig
from trimtab.rewards.build import build_rubric
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric

QUICK = RetryConfig(pause=0.01)


class HTTPTimeout(TimeoutError):  # noqa: N818  (as network libraries name theirs)
    """A time-out met inside the grader; its base is what the settings name."""


def failing(times, fault):
    """A function that raises ``fault`` the first ``times`` times, and how often it was asked."""
    asked = []

    def score(prompt, rollout):
        asked.append(rollout.key)
        if len(asked) <= times:
            raise fault
        return 1.0

    return FunctionGrader(score, "own"), asked


def grade(grader, **settings):
    rubric = Rubric([(grader, 1.0)], **settings)
    return rubric, asyncio.run(rubric.grade(group_of([rollout_of()]))).grades[0]


@pytest.mark.parametrize(
    "fault", [ConnectionError("refused"), ConnectionResetError(), TimeoutError(), HTTPTimeout()]
)
def test_a_fault_of_the_network_is_met_with_another_attempt(fault):
    grader, asked = failing(2, fault)
    rubric, found = grade(grader, retry=QUICK)
    assert found.value == 1.0
    assert len(asked) == 3
    assert rubric.first_traceback is None, "it passed"


def test_a_fault_that_does_not_pass_is_given_up_and_counted():
    grader, asked = failing(9, ConnectionError("refused"))
    _, found = grade(grader, retry=QUICK)
    assert str(found.state) == "grader_failed"
    assert found.detail == "own: ConnectionError: refused (3 attempts)"
    assert len(asked) == 3


def test_a_time_out_of_the_graders_own_that_does_not_pass_is_one_of_the_answer():
    grader, asked = failing(9, HTTPTimeout("slow"))
    _, found = grade(grader, retry=QUICK)
    assert str(found.state) == "timeout"
    assert "slow (3 attempts)" in found.detail
    assert len(asked) == 3


def test_a_deterministic_fault_is_not_retried():
    for fault in (ValueError("no"), KeyError("no"), MemoryError()):
        grader, asked = failing(9, fault)
        assert str(grade(grader, retry=QUICK)[1].state) == "grader_failed"
        assert len(asked) == 1


def test_which_faults_pass_is_a_setting():
    for name in ("ValueError", "builtins.ValueError", "Exception"):
        grader, asked = failing(1, ValueError("no"))
        assert grade(grader, retry=RetryConfig(on=(name,), pause=0.01))[1].value == 1.0
        assert len(asked) == 2
    grader, asked = failing(1, ConnectionError())
    assert grade(grader, retry=RetryConfig(times=0))[1].value is None
    assert len(asked) == 1


def test_an_answer_past_its_limit_is_not_retried_unless_asked_for():
    for killed, attempts in ((False, 1), (True, 3)):
        asked = []

        async def hang(prompt, rollout, asked=asked):
            asked.append(1)
            await asyncio.sleep(3600)

        retry = RetryConfig(pause=0.01, killed=killed)
        _, found = grade(FunctionGrader(hang, "own"), timeout=0.05, retry=retry)
        assert str(found.state) == "timeout"
        assert len(asked) == attempts


def test_faults_in_a_worker_are_told_apart_by_class_too(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "import socket\nasked = []\n"
        "def network(prompt, rollout):\n"
        "    asked.append(1)\n"
        "    if len(asked) < 3: raise socket.timeout('slow')\n"
        "    return 1.0\n"
        "def logic(prompt, rollout):\n"
        "    asked.append(1)\n"
        "    if len(asked) < 2: raise ValueError('no')\n"
        "    return 1.0\n"
    )
    for function, state in (("network", "right"), ("logic", "grader_failed")):
        config = RewardConfig(graders=(GraderConfig(name=f"{file}:{function}"),), workers=1, retry=QUICK)
        found = asyncio.run(build_rubric(config).grade(group_of([rollout_of()]))).grades[0]
        assert str(found.state) == state
    assert found.detail == "logic: ValueError: no"


def test_pauses_double_and_are_bounded_and_spread():
    retry = RetryConfig(pause=1.0)
    assert [retry.pause_before(k, 0) for k in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert retry.pause_before(30, 0) == LONGEST_PAUSE
    assert 1.0 < retry.pause_before(1, 700) < 1.5
    for wrong, told in (
        (lambda: RetryConfig(times=-1), "times"),
        (lambda: RetryConfig(pause=-1.0), "pause"),
        (lambda: RetryConfig(pause=float("inf")), "pause"),
        (lambda: RetryConfig(on=("",)), "on"),
    ):
        with pytest.raises(SettingError, match=f"reward.retry.{told}"):
            wrong()


def test_a_grader_works_on_no_more_answers_at_once_than_it_may():
    now, most = 0, 0

    async def watch(prompt, rollout):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return 1.0

    rubric = Rubric([(FunctionGrader(watch), 1.0)], concurrency=3, timeout=0.1)
    for _ in range(2):  # in two event loops
        group = group_of([rollout_of(index=i) for i in range(40)])
        scored = asyncio.run(rubric.grade(group))
        assert all(grade.graded for grade in scored.grades), "waiting for a turn is not part of the limit"
    assert most == 3


def test_work_in_this_thread_is_charged_and_waiting_is_not():
    async def work(prompt, rollout):
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0.5)
        return 1.0

    rubric = Rubric([(FunctionGrader(work), 1.0)])
    asyncio.run(rubric.grade(group_of([rollout_of(index=i) for i in range(2)])))
    assert 0.1 <= rubric.seconds < 0.5, "and not 0.6 or 1.1"
