"""What a run says of its own accord: answers cut off (case 37), and a grader that never moves (case 40)."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.collecting import Bench
from tests.tiny_runs import tiny_run, train_silently
from trimtab.errors import RunError
from trimtab.loop.notices import CONSTANT_ANSWERS, constant_parts, cut_off
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.trainer.checkpoint import latest_checkpoint
from trimtab.trainer.optimizer import Optimizer

GRADERS = """
def never_right(prompt, rollout):
    return 0.0

def starts_with_digit(prompt, rollout):
    return float(rollout.text[:1].isdigit())
"""


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graders") / "graders.py"
    path.write_text(GRADERS)
    return path


@pytest.mark.parametrize(
    ("script", "share"),
    [
        ({"a": ["0" * 20] * 4, "b": ["0" * 30] * 4}, 1.0),
        ({"a": ["0" * 20] * 4, "b": ["1" * 20, *["0" * 20] * 3]}, None),  # one is right
        ({"a": ["0" * 20] * 4, "b": ["0", *["0" * 20] * 3]}, None),  # too many end by themselves
        ({"a": ["-" * 20] * 4, "b": ["-" * 20] * 4}, 1.0),  # none could be graded
    ],
    ids=["all cut", "one right", "seven of eight", "ungraded"],
)
def test_cut_off_needs_hardly_an_end_and_nothing_right(script: dict[str, list[str]], share: float | None):
    found = Bench(script, wanted=2, max_new_tokens=16).step()
    assert cut_off(found.fresh) == share
    assert cut_off([]) is None


@pytest.mark.parametrize("algorithm", [{"name": "grpo"}, {"name": "dapo", "overlong_buffer": 1}], ids=str)
def test_case_37_a_limit_below_what_the_task_needs_stops_early_with_a_suggestion(
    algorithm: dict[str, Any], model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        algorithm,
        run={"steps": 50},
        data={"held_out": 0},
        reward={"graders": [{"name": f"{graders}:never_right"}], "truncated": "wrong"},
        sampling={"max_new_tokens": 2, "samples_per_prompt": 8},
    )
    words = (
        r"3 steps in a row .* (9\d|100)% of the answers were cut off at sampling.max_new_tokens = 2 .*= 8,"
    )
    with pytest.raises(RunError, match=words):
        train_silently(run, tmp_path / "run")
    assert len(RunReader(tmp_path / "run").history) == 3, "not a flat run of fifty"
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert newest.step == 3


def test_case_40_a_grader_that_gives_0_to_200_answers_is_told_of_once_with_three_of_them(
    model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        run={"steps": 14},
        data={"held_out": 0},
        reward={
            "graders": [{"name": f"{graders}:never_right"}, {"name": f"{graders}:starts_with_digit"}],
            "truncated": "grade",
        },
        sampling={"prompts_per_step": 10, "max_new_tokens": 30},
        record={"checkpoint_every": 100, "rollouts": 0},
    )
    _, view = train_silently(run, tmp_path / "run")
    warned = [event for event in RunReader(tmp_path / "run").events if event["event"] == Event.WARNED]
    assert len(warned) == 1
    assert "grader 'never_right' has given 0 to all" in warned[0]["message"]
    assert warned[0]["message"].split("three of them: ")[1].count("'") >= 6
    assert any(warned[0]["message"] in message for message in view.messages)


def bench_of(script: str | list[str], **options: Any) -> Bench:
    """Its grader gives 1 to answers that begin with 1, else 0."""
    return Bench({"a": script}, wanted=1, **options)


@pytest.mark.parametrize(("answers", "value"), [(["0", "00", "02", "03"], 0), (["1", "10", "12", "13"], 1)])
def test_a_constant_of_any_value_is_told_of_once_over_steps(answers: list[str], value: int):
    streaks: dict[str, list[float]] = {}
    bench = bench_of(answers)
    for step in range(CONSTANT_ANSWERS // 4):
        assert streaks.get("first_character", [0, 0])[1] == 4 * step
        told = constant_parts(bench.step().fresh, streaks)
        assert bool(told) == (step == CONSTANT_ANSWERS // 4 - 1)
    assert f"'first_character' has given {value} to all {CONSTANT_ANSWERS} answers so far" in told[0]
    assert told[0].endswith("three of them: " + ", ".join(map(repr, answers[:3])))
    assert not constant_parts(bench.step().fresh, streaks), "once is enough"


def test_a_part_that_stays_at_a_half_is_told_of_too():
    streaks = {"first_character": [0.5, CONSTANT_ANSWERS - 1, 0]}
    fresh = bench_of("0").step().fresh
    halves = [
        replace(s, grades=tuple(replace(g, parts={"first_character": 0.5}) for g in s.grades)) for s in fresh
    ]
    assert "has given 0.5 to all" in constant_parts(halves, streaks)[0]


def test_a_part_that_moves_starts_again_and_one_that_was_learned_is_left_alone():
    streaks = {"first_character": [0.0, CONSTANT_ANSWERS - 1, 0]}
    assert not constant_parts(bench_of("1000").step().fresh, streaks), "one was right"
    streaks = {"first_character": [0.0, 7, 0]}
    assert not constant_parts(bench_of(["1", "1", "1", "1"]).step().fresh, streaks)
    assert streaks == {"first_character": [1.0, 4, 1]}
    streaks = {"first_character": [1.0, CONSTANT_ANSWERS, 1]}
    assert not constant_parts(bench_of(["1"] * 4).step().fresh, streaks), "learned"
    streaks = {"first_character": [0.0, CONSTANT_ANSWERS, 1]}
    assert "to the last 204 answers" in constant_parts(bench_of(["0"] * 4).step().fresh, streaks)[0], (
        "it broke"
    )


def test_cut_answers_say_nothing_of_a_grader():
    cut = bench_of(["0" * 20] * 4, max_new_tokens=16).step().fresh
    assert not constant_parts(cut, {"first_character": [0.0, CONSTANT_ANSWERS - 1, 0]})


def test_an_update_that_changes_no_weight_is_noticed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Optimizer, "step", lambda self, factor: None)
    with pytest.raises(RunError, match="an update changes the published weights: they are as before"):
        train_silently(tiny_run(model), tmp_path / "run")
    assert RunReader(tmp_path / "run").rollouts(0), "what was sampled is there to be looked at"
