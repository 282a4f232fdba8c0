"""What a run says of its own accord: answers cut off (case 37), and a grader that gives nothing (case 40)."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.collecting import Bench
from tests.tiny_runs import tiny_run, train_silently
from trimtab.errors import RunError
from trimtab.loop.notices import SILENT_ANSWERS, cut_off, silent_graders
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


def test_answers_are_counted_over_steps_and_one_point_ends_the_count():
    zeros: dict[str, int] = {}
    bench = Bench({"a": "0000"}, wanted=1)
    for step in range(SILENT_ANSWERS // 4):
        assert zeros.get("first_character", 0) == 4 * step
        told = silent_graders(bench.step().fresh, zeros)
        assert bool(told) == (step == SILENT_ANSWERS // 4 - 1)
    assert not silent_graders(bench.step().fresh, zeros), "once is enough"
    zeros = {"first_character": SILENT_ANSWERS - 1}
    assert not silent_graders(Bench({"a": "1000"}, wanted=1).step().fresh, zeros), "one was right"
    assert not silent_graders(bench.step().fresh, zeros)
    cut = Bench({"a": ["0" * 20] * 4}, wanted=1, max_new_tokens=16).step().fresh
    zeros = {"first_character": SILENT_ANSWERS - 1}
    assert not silent_graders(cut, zeros), "cut answers say nothing of a grader"


def test_an_update_that_changes_no_weight_is_noticed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Optimizer, "step", lambda self, factor: None)
    with pytest.raises(RunError, match="an update changes the published weights: they are as before"):
        train_silently(tiny_run(model), tmp_path / "run")
    assert RunReader(tmp_path / "run").rollouts(0), "what was sampled is there to be looked at"
