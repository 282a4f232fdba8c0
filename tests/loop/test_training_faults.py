"""How runs fail: numbers that are not finite, broken graders, hopeless data. Each names what to look at."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_runs import tiny_run, train_silently
from trimtab.errors import RunError
from trimtab.models import load_model
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.trainer.checkpoint import latest_checkpoint
from trimtab.trainer.local import LocalTrainer

DAPO = {"name": "dapo", "overlong_buffer": 4}
NO_CHECKPOINTS = {"checkpoint_every": 100, "tokens": "all"}
GRADERS = """
def fails_once(prompt, rollout, seen=[]):
    seen.append(rollout.key)
    if len(seen) == 7:
        raise ValueError("seven is too many")
    return float(rollout.text[:1].isdigit())

def fails_always(prompt, rollout):
    raise ValueError("the answer is 42")

def half_of_the_time(prompt, rollout):
    if rollout.index % 2:
        raise ValueError("an odd one")
    return float(rollout.text[:1].isdigit())

def last_fails(prompt, rollout):
    if rollout.index == 3:
        raise ValueError("the last one \\ud800")
    return float(rollout.text[:1].isdigit())

def never_right(prompt, rollout):
    return 0.0
"""


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graders") / "graders.py"
    path.write_text(GRADERS)
    return path


def graded_by(graders: Path, function: str, **settings: Any) -> dict[str, Any]:
    return {"graders": [{"name": f"{graders}:{function}", **settings}], "truncated": "grade"}


def events(folder: Path, kind: Event) -> list[dict[str, Any]]:
    return [event for event in RunReader(folder).events if event["event"] == kind]


def damage(model: Any) -> str:
    name, weight = next((n, p) for n, p in model.module.named_parameters() if "mlp" in n)
    weight.data.view(-1)[0] = float("nan")
    return name


@pytest.mark.parametrize("where", ["before sampling", "before the update", "after the update"])
def test_case_38_a_nan_stops_the_run_names_the_tensor_and_leaves_the_checkpoint_before(
    where: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    update, publish = LocalTrainer.update, LocalTrainer.publish
    calls = {"update": 0, "publish": 0}

    async def updating(self: LocalTrainer, *args: Any) -> Any:
        calls["update"] += 1
        if where == "before the update" and calls["update"] == 5:  # the first of step 2
            damage(self.model)
        report = await update(self, *args)
        if where == "after the update" and calls["update"] == 6:
            damage(self.model)
        return report

    async def publishing(self: LocalTrainer) -> Any:
        calls["publish"] += 1
        if where == "before sampling" and calls["publish"] == 4:  # once at the start, once a step
            damage(self.model)
        return await publish(self)

    monkeypatch.setattr(LocalTrainer, "update", updating)
    monkeypatch.setattr(LocalTrainer, "publish", publishing)
    run = tiny_run(model, run={"steps": 5}, evaluation={"every": 0})
    with pytest.raises(RunError, match=r"policy's weight .*mlp\S* is not finite") as stopped:
        train_silently(run, tmp_path / "run")
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    if where == "before the update":
        assert "sums-" in str(stopped.value), "the rollouts concerned are named"
        keys = [row.key for row in RunReader(tmp_path / "run").rollouts(2)]
        assert any(key in str(stopped.value) for key in keys), "and can be looked at"
        assert newest.step == 2
    assert newest.step == 2
    monkeypatch.undo()
    load_model(str(newest.path / "model"), device="cpu", dtype="auto")
    summary, _ = train_silently(run, tmp_path / "run", resume=True)
    assert summary["steps"] == 5


def test_case_17_where_every_answer_is_masked_the_update_is_skipped_and_counted(model: Path, tmp_path: Path):
    run = tiny_run(
        model,
        {
            "name": "custom",
            "advantage": "group",
            "ratio": "token",
            "surrogate": "clip",
            "aggregate": "token-mean",
            "overlong_filter": True,
        },
        run={"steps": 2},
        sampling={"max_new_tokens": 1},
        record=NO_CHECKPOINTS,
    )
    _, view = train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    full = [step for step in (0, 1) if reader.history.value(step, "length/truncated") == 1.0]
    assert full, "some step must have truncated answers only"
    for step in full:
        assert reader.history.value(step, "optimizer/updates") == 0.0
        assert reader.history.value(step, "optimizer/skipped") == 2.0
        assert any(f"step {step + 1}: no update was made" in message for message in view.messages)
        assert not [
            key for key in reader.history.metrics(step) if key.startswith(("mismatch/", "ratio/token"))
        ]
    reasons = {event["reason"] for event in events(tmp_path / "run", Event.UPDATE_SKIPPED)}
    assert "every token of the update is masked" in reasons


def test_case_26_a_grader_that_raises_once_loses_one_answer(model: Path, graders: Path, tmp_path: Path):
    run = tiny_run(
        model,
        run={"steps": 1},
        data={"held_out": 0},
        reward=graded_by(graders, "fails_once", isolated=False),  # it counts over all answers
        sampling={"prompts_per_step": 8},
        record={**NO_CHECKPOINTS, "rollouts": 1, "tokens": 0},
    )
    train_silently(run, tmp_path / "run")
    [fault] = events(tmp_path / "run", Event.GRADER_FAILED)
    assert fault["state"] == "grader_failed"
    assert "ValueError: seven is too many" in fault["detail"]
    reader = RunReader(tmp_path / "run")
    assert reader.history.value(0, "grades/grader_failed") == pytest.approx(1 / 32)
    [row] = [row for row in reader.rollouts(0) if row.key == fault["rollout"]]
    assert (row.value, row.reward, row.update) == (None, None, None), "never 0, never trained"
    assert row.flag == "grader failed"


def test_every_fault_is_told_once_whether_its_group_is_trained_dropped_or_waits(
    model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        DAPO,
        data={"held_out": 0},
        reward=graded_by(graders, "last_fails"),
        record={**NO_CHECKPOINTS, "rollouts": 0, "tokens": 0},
    )
    train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    faults = [event["rollout"] for event in events(tmp_path / "run", Event.GRADER_FAILED)]
    assert len(faults) == len(set(faults)) == reader.history.series("flow/draws").values.sum()
    assert reader.history.series("flow/groups_carried_out").values.max() > 0, "change the seed: none waited"
    rows = [row for step in reader.rollout_steps() for row in reader.rollouts(step)]
    assert {row.kept for row in rows} == {True, False}, "a dropped group with a fault is flagged as well"
    assert {row.flag for row in rows} == {"grader failed"}
    assert all(row.tokens is not None for row in rows)


@pytest.mark.parametrize("held_out", [0, 6])
def test_case_26_a_grader_that_always_raises_stops_the_run_with_the_first_traceback(
    held_out: int, model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(model, data={"held_out": held_out}, reward=graded_by(graders, "fails_always"))
    with pytest.raises(RunError, match=r"(?s)could not be graded.*Traceback.*the answer is 42"):
        train_silently(run, tmp_path / "run")
    faults = events(tmp_path / "run", Event.GRADER_FAILED)
    assert len(faults) == (0 if held_out else 16), "an evaluation stops before anything is sampled to train"
    assert not (tmp_path / "run" / "evaluations").exists()


def test_what_cannot_be_estimated_is_absent(model: Path, graders: Path, tmp_path: Path):
    """Half of the answers graded: pass@1 stands, pass@2 of two answers does not."""
    run = tiny_run(
        model, run={"steps": 1}, reward=graded_by(graders, "half_of_the_time"), record=NO_CHECKPOINTS
    )
    summary, _ = train_silently(run, tmp_path / "run")
    start = summary["evaluation"]["start"]
    assert "pass@1" in start
    assert "pass@2" not in start
    assert (start["answers"], start["ungraded"]) == (12, 6)


def test_case_5_hopeless_data_ends_after_the_bound_with_the_reasons(
    model: Path, graders: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        {**DAPO, "selection": {"max_draws_factor": float("inf"), "max_empty_steps": 2}},
        run={"steps": 50},
        data={"train_prompts": 10},
        reward=graded_by(graders, "never_right"),
        record=NO_CHECKPOINTS,
    )
    with pytest.raises(RunError, match="2 steps in a row found no group.*10 all-wrong; 10 prompts drawn"):
        train_silently(run, tmp_path / "run")
    assert len(RunReader(tmp_path / "run").history) == 2
    assert len(events(tmp_path / "run", Event.STEP_EMPTY)) == 2
    assert len(events(tmp_path / "run", Event.GROUP_DROPPED)) == 20
    assert events(tmp_path / "run", Event.STOPPED)
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert newest.step == 2, "what was learned before is not lost"


def test_prompts_that_all_rest_end_the_run_and_the_reason_says_so(model: Path, graders: Path, tmp_path: Path):
    memory = {"hopeless_rest": 9}
    run = tiny_run(
        model,
        DAPO,
        data={"train_prompts": 4, "memory": memory},
        reward=graded_by(graders, "never_right"),
    )
    with pytest.raises(RunError, match="every prompt rests, see data.memory"):
        train_silently(run, tmp_path / "run")
