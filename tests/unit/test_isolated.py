"""Graders in worker processes: what hangs, dies or fills the memory costs one answer and names it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import datetime
import time
from dataclasses import fields

import numpy as np
import pytest

from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.build import build_grader, build_rubric
from trimtab.rewards.isolated import IsolatedFunction, IsolatedGrader
from trimtab.rewards.rubric import GraderConfig, RewardConfig
from trimtab.types import Finish

GRADERS = r"""
from __future__ import annotations
import asyncio, os, re, sys, time
from dataclasses import dataclass

import numpy as np

@dataclass
class Rule:
    answer: str

def score(prompt, rollout):
    return float(rollout.text == Rule(prompt.answer).answer)

def torch_free(prompt, rollout):
    return "torch" not in sys.modules

def told(prompt, rollout):
    from trimtab.types import Grade
    return Grade.of(0.5, parts={"style": 1.0}, detail="half")

def seen(prompt, rollout):
    assert prompt.token_ids.dtype == np.int64 and prompt.token_ids.tolist() == [2, 3, 4, 5]
    assert rollout.logprobs.dtype == np.float32 and rollout.mask.tolist() == [True] * 3
    assert rollout.key == "p#0/0" and rollout.version == 4 and not rollout.truncated
    assert prompt.meta == {"tests": [1, {"x": None}], "count": 3}
    return 1.0

def hard(prompt, rollout):
    if rollout.index != 2:
        return 1.0
    what = rollout.text
    if what == "loop":
        while True: pass
    if what == "regex":
        return re.fullmatch(r"(a+)+b", "a" * 40) is None
    if what == "exit":
        os._exit(3)
    if what == "memory":
        return len([bytearray(1 << 26) for _ in range(1000)])
    if what == "raise":
        raise KeyError("column")
    if what == "sys.exit":
        sys.exit(4)
    if what == "text":
        return "1"

async def later(prompt, rollout):
    await asyncio.sleep(0.3)
    return 1.0

async def hard_later(prompt, rollout):
    await asyncio.sleep(0.05)
    if rollout.text == "slow" and rollout.index == 2:
        await asyncio.sleep(60)
    return await asyncio.to_thread(float, 1) if rollout.index != 2 else hard(prompt, rollout)

state = []
def counting(prompt, rollout):
    state.append(rollout.key)
    return min(len(state) / 100, 1.0)

def trl_style(completions, answer, **kwargs):
    return [float(text == gold) for text, gold in zip(completions, answer)]
"""

NO_GRADE = "hard: no grade of p#0/2 (prompt p)"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("isolated") / "mine.py"
    path.write_text(GRADERS)
    return path


def grades(file, function, texts, *, prompt=None, settings=None, **reward):
    config = GraderConfig(name=f"{file}:{function}", **(settings or {}))
    rubric = build_rubric(RewardConfig(graders=(config,), workers=2, worker_megabytes=512, **reward))
    group = group_of([rollout_of(text, index=i) for i, text in enumerate(texts)], prompt)
    scored = asyncio.run(rubric.grade(group))
    return rubric, scored.grades


def states(found):
    return [str(grade.state) for grade in found]


def test_functions_run_isolated_unless_told_otherwise(file):
    assert isinstance(build_grader(GraderConfig(name=f"{file}:score")), IsolatedFunction)
    _, found = grades(file, "score", ["7", "8"])
    assert states(found) == ["right", "wrong"]
    _, found = grades(file, "torch_free", ["7"])
    assert states(found) == ["right"], "a worker is small"


def test_the_function_sees_all_that_it_would_see_in_the_training_process(file):
    prompt = prompt_of(tests=[1, {"x": None}], count=np.int64(3))
    grader = build_grader(GraderConfig(name=f"{file}:seen"))
    rollout = rollout_of(version=4)
    assert asyncio.run(grader(prompt, rollout)).value == 1.0
    names = {field.name for field in fields(prompt)} | {field.name for field in fields(rollout)}
    payload = grader_payload(prompt, rollout)
    assert names == {n for noun in payload for part in noun.values() for n in part}


def grader_payload(prompt, rollout):
    import json

    from trimtab.rewards.isolated import payload_of

    sent = json.loads(payload_of(prompt, [rollout]))
    return [sent["prompt"], sent["rollouts"][0]]


def test_a_grade_of_its_own_comes_back_whole(file):
    _, (grade,) = grades(file, "told", ["7"])
    assert (str(grade.state), grade.value, grade.detail) == ("partial", 0.5, "half")
    assert grade.parts == {"told": 0.5, "told.style": 1.0}


def test_a_function_of_another_framework_sees_its_group_at_once(file):
    _, found = grades(file, "trl_style", ["7", "8", "7"])
    assert states(found) == ["right", "wrong", "right"]


@pytest.mark.parametrize(
    ("what", "state", "detail"),
    [
        ("loop", "timeout", f"{NO_GRADE} within 1 s; its process was killed"),
        ("regex", "timeout", f"{NO_GRADE} within 1 s; its process was killed"),
        (
            "exit",
            "grader_failed",
            f"{NO_GRADE}: the process of hard ended: exit code 3",
        ),
        ("memory", "grader_failed", "hard: MemoryError"),
        ("raise", "grader_failed", "hard: KeyError: 'column'"),
        ("sys.exit", "grader_failed", "hard: RuntimeError: function 'hard' called exit(4)"),
    ],
)
def test_case_25_a_hard_answer_costs_itself_and_no_other(file, what, state, detail):
    began = time.monotonic()
    limit = 1.0 if state == "timeout" else 30.0
    rubric, found = grades(file, "hard", [what] * 8, timeout=limit)
    assert states(found) == ["right"] * 2 + [state] + ["right"] * 5
    assert found[2].detail == detail
    assert time.monotonic() - began < 30.0
    assert rubric.first_traceback is not None
    assert "p#0/2" in rubric.first_traceback
    assert states(grades(file, "score", ["7"])[1]) == ["right"], "the next answer is graded normally"


def test_a_wrong_type_from_a_worker_names_function_and_answer(file):
    _, found = grades(file, "hard", ["text"] * 3)
    assert states(found) == ["right", "right", "grader_failed"]
    assert "'hard' returned '1' (str)" in found[2].detail


def test_coroutines_run_together_up_to_the_bound(file):
    began = time.monotonic()
    _, found = grades(file, "later", ["7"] * 16, concurrency=16)
    assert states(found) == ["right"] * 16
    assert time.monotonic() - began < 4.0, "16 x 0.3 s, one after another, would be 4.8 s"
    began = time.monotonic()
    grades(file, "later", ["7"] * 8, concurrency=4)
    assert time.monotonic() - began >= 0.6, "4 at once: two rounds"


@pytest.mark.parametrize("what", ["loop", "exit", "slow"])
def test_a_coroutine_that_blocks_or_ends_its_worker_is_found_among_those_with_it(file, what):
    _, found = grades(file, "hard_later", [what] * 8, timeout=0.5, concurrency=16)
    lost = {"exit": "grader_failed"}.get(what, "timeout")
    assert states(found) == ["right"] * 2 + [lost] + ["right"] * 5
    assert "p#0/2" in found[2].detail


def test_a_worker_keeps_the_state_of_a_module_and_shares_it_with_no_other(file):
    _, found = grades(file, "counting", ["7"] * 20)
    values = [round(100 * (grade.value or 0.0)) for grade in found]
    holders = [values.count(count) for count in range(1, 21)]
    assert sum(holders) == 20
    assert holders[0] in (1, 2), "one or two workers, each counts from 1"
    assert holders == sorted(holders, reverse=True), "and on, without a gap"


def test_the_limit_of_one_grader_can_differ_from_the_others(file):
    settings = {"timeout": 0.5}
    _, found = grades(file, "hard", ["loop"] * 3, settings=settings)
    assert found[2].detail.startswith("hard: no grade of p#0/2 (prompt p) within 0.5 s")


def test_what_json_cannot_hold_is_named_with_the_way_out(file):
    _, (grade,) = grades(file, "score", ["7"], prompt=prompt_of(when=datetime.date(2020, 1, 1)))
    assert str(grade.state) == "grader_failed"
    for said in ("prompt p: its meta", "date", "isolated = false"):
        assert said in grade.detail


def test_a_function_that_cannot_be_loaded_in_a_worker_says_so_at_once(file, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import __main__\n__main__.only_in_training\ndef score(prompt, rollout): return 1\n")
    with pytest.raises(SettingError, match=r"in a worker process raised AttributeError.*isolated = false"):
        build_grader(GraderConfig(name=f"{broken}:score"))
    ending = tmp_path / "ending.py"
    ending.write_text("import os\nos._exit(9)\n")
    with pytest.raises(SettingError, match=r"cannot be loaded in a worker.*exit code 9.*isolated = false"):
        build_grader(GraderConfig(name=f"{ending}:score"))
    with pytest.raises(SettingError, match="did you mean 'score'"):
        build_grader(GraderConfig(name=f"{file}:scroe"))


def test_a_built_in_grader_can_be_isolated_too():
    grader = build_grader(GraderConfig(name="answer", isolated=True))
    assert isinstance(grader, IsolatedGrader)
    assert asyncio.run(grader(prompt_of(), rollout_of("#### 7"))).value == 1.0
    assert grader.read(prompt_of(), rollout_of("#### 7")) == "7"
    assert [bad.prompt_id for bad in grader.self_check([prompt_of("x", answer="")])] == ["x"]
    with pytest.raises(SettingError, match="'code' cannot be isolated"):
        build_grader(GraderConfig(name="code", isolated=True))


def test_truncated_and_aborted_answers_never_reach_a_worker(file):
    rubric = build_rubric(RewardConfig(graders=(GraderConfig(name=f"{file}:hard"),)))
    rollouts = [rollout_of("loop", index=2, finish=finish) for finish in (Finish.LENGTH, Finish.ABORT)]
    found = asyncio.run(rubric.grade(group_of(rollouts))).grades
    assert states(found) == ["wrong", "not_gradable"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"workers": 0}, "workers"),
        ({"worker_megabytes": 1}, "worker_megabytes"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_impossible_worker_settings_are_refused(settings, told):
    with pytest.raises(SettingError, match=f"reward.{told}"):
        build_rubric(RewardConfig(**settings))
