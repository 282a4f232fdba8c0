"""Grade states from an isolated grader to the record: what was not graded teaches nothing."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from tests.collecting import Bench
from tests.handmade import group_of, prompt_of, rollout_of
from tests.tiny_runs import tiny_run, train_silently
from trimtab.errors import RunError
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.rewards.build import build_rubric
from trimtab.rewards.function import FunctionGrader
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric
from trimtab.types import Group

GRADERS = """
import os

def eventful(prompt, rollout):
    if rollout.index == 1:
        while True: pass
    if rollout.index == 3:
        os._exit(7)
    if rollout.index == 5:
        return None
    return (0.25, 1.0, 0.75)[rollout.index // 2]

def dies(prompt, rollout):
    raise LookupError("the rows have no such column")
"""
LOST = {1: "timeout", 3: "grader_failed", 5: "not_gradable"}


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("states") / "graders.py"
    path.write_text(GRADERS)
    return path


def reward(graders: Path, function: str, **settings: Any) -> dict[str, Any]:
    return {"graders": [{"name": f"{graders}:{function}"}], "truncated": "grade", "timeout": 0.7, **settings}


def test_every_state_reaches_the_record_and_only_graded_answers_train(
    model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        run={"steps": 1},
        data={"held_out": 0},
        reward=reward(graders, "eventful"),
        sampling={"prompts_per_step": 2, "samples_per_prompt": 6},
        record={"checkpoint_every": 100, "tokens": "all"},
    )
    _, view = train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    rows = reader.rollouts(0)
    assert len(rows) == 12
    for row in rows:
        if row.index in LOST:
            assert str(row.grade) == LOST[row.index]
            assert (row.value, row.reward, row.update, row.advantage) == (None,) * 4, "never 0, never trained"
            continue
        graded = [other for other in rows if other.group == row.group and other.index not in LOST]
        values = [other.value for other in graded if other.value is not None]
        assert values == [0.25, 1.0, 0.75]
        assert row.update is not None
        assert row.value is not None
        of_three = (row.value - mean(values)) / stdev(values)
        assert row.advantage == pytest.approx(of_three, abs=1e-4)
    shares = reader.history.metrics(0)
    assert all(shares[f"grades/{state}"] == pytest.approx(1 / 6) for state in LOST.values())
    assert shares["grades/ungraded"] == pytest.approx(0.5)
    faults = [event for event in reader.events if event["event"] == Event.GRADER_FAILED]
    assert {event["rollout"]: event["state"] for event in faults} == {
        row.key: LOST[row.index] for row in rows if row.index in LOST
    }
    [line] = [message for message in view.messages if "no grade of" in message]
    stuck = next(row for row in rows if row.index == 1)
    assert f"step 1: eventful: no grade of {stuck.key} (prompt {stuck.prompt_id}) within 0.7 s" in line
    assert "its process was killed (and 3 more in this step)" in line


def test_the_share_that_stops_a_run_is_a_setting(model: Path, graders: Path, tmp_path: Path):
    run = tiny_run(
        model,
        run={"steps": 1},
        data={"held_out": 0},
        reward=reward(graders, "eventful", max_ungraded_share=0.4),
        sampling={"prompts_per_step": 2, "samples_per_prompt": 6},
    )
    with pytest.raises(RunError, match=r"6 of 12 answers.*2 timeout.*max_ungraded_share = 0.4"):
        train_silently(run, tmp_path / "run")


def test_where_all_fail_in_workers_the_run_stops_with_the_first_traceback(
    model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(model, data={"held_out": 0}, reward=reward(graders, "dies"))
    with pytest.raises(RunError, match=r"(?s)16 of 16.*the first traceback.*in dies.*no such column"):
        train_silently(run, tmp_path / "run")


@pytest.mark.parametrize("isolated", [True, False])
def test_a_group_is_graded_while_others_are_still_sampled(isolated: bool, tmp_path: Path):
    """The first group's grade waits for sampling to go on, and sampling then waits for that grade."""
    goes_on, graded = tmp_path / "goes_on", tmp_path / "graded"
    kind, pause = ("def", "time.sleep") if isolated else ("async def", "await asyncio.sleep")
    patient = tmp_path / "patient.py"
    patient.write_text(
        f"import asyncio, os, time\n{kind} wait(prompt, rollout):\n"
        f"    while not os.path.exists({str(goes_on)!r}):\n        {pause}(0.01)\n"
        f"    open({str(graded)!r}, 'w').close()\n    return 1.0\n"
    )

    async def sampled() -> AsyncIterator[Group]:
        yield group_of([rollout_of(prompt="p0")], prompt_of("p0"))
        goes_on.touch()
        until = time.monotonic() + 60
        while not graded.exists():  # an engine computes in this thread, with turns of the loop between
            assert time.monotonic() < until, "no grade while sampling goes on"
            time.sleep(0.01)
            await asyncio.sleep(0)
        yield group_of([rollout_of(prompt="p1")], prompt_of("p1"))

    config = GraderConfig(name=f"{patient}:wait", isolated=isolated)
    rubric = build_rubric(RewardConfig(graders=(config,), timeout=120.0))
    scored = asyncio.run(rubric.grade_all(sampled()))
    assert [group.group.prompt.id for group in scored] == ["p0", "p1"]
    assert [grade.value for group in scored for grade in group.grades] == [1.0, 1.0]


def test_the_wait_after_sampling_is_charged_to_grading():
    async def slow(prompt: Any, rollout: Any) -> float:
        await asyncio.sleep(0.3)
        return 1.0

    async def sampled() -> AsyncIterator[Group]:
        yield group_of([rollout_of()])

    rubric = Rubric([(FunctionGrader(slow), 1.0)])
    asyncio.run(rubric.grade_all(sampled()))
    assert rubric.seconds >= 0.29


def test_an_engine_that_fails_leaves_no_grading_behind():
    cancelled = []

    async def endless(prompt: Any, rollout: Any) -> float:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(rollout.key)
            raise
        return 1.0

    async def broken() -> AsyncIterator[Group]:
        yield group_of([rollout_of()])
        await asyncio.sleep(0.05)
        raise RunError("the logits are not finite")

    async def collect() -> set[Any]:
        with pytest.raises(RunError, match="not finite"):
            await Rubric([(FunctionGrader(endless), 1.0)]).grade_all(broken())
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(collect()) == set()
    assert cancelled == ["p#0/0"]


def test_the_seconds_of_a_step_are_split_without_remainder():
    bench = Bench({f"p{k}": "1010" for k in range(6)}, wanted=6)
    began = time.perf_counter()
    found = bench.step()
    took = time.perf_counter() - began
    assert found.grade_seconds > 0.0
    assert 0.0 < found.sample_seconds + found.grade_seconds <= took
