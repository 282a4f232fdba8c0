"""What a run leaves behind adds up: summary, evaluations, held-out prompts, and runs that go on."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny_runs import SilentView, tiny_run, train_silently
from trimtab import launch
from trimtab.errors import DataError, RunError
from trimtab.evaluation.estimators import pass_at_k
from trimtab.record.events import Event
from trimtab.record.groups import load_groups
from trimtab.record.reader import RunReader, State
from trimtab.trainer.local import LocalTrainer

DAPO = {"name": "dapo", "overlong_buffer": 4}


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of five steps, evaluated in between."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train_silently(tiny_run(model, DAPO, run={"steps": 5}, evaluation={"every": 2, "samples": 4}), path)
    return path


def events(folder: Path, kind: Event) -> list[dict[str, Any]]:
    return [event for event in RunReader(folder).events if event["event"] == kind]


def evaluation(folder: Path, label: str) -> dict[str, Any]:
    return json.loads((folder / "evaluations" / f"{label}.json").read_text())


# ------------------------------------------------------------------------------ summary and evaluations


def test_the_summary_has_the_promised_fields_and_its_numbers_add_up(folder: Path):
    summary = json.loads((folder / "summary.json").read_text())
    fields = ["algorithm", "evaluation", "steps", "tokens", "seconds", "peak_memory_bytes"]
    assert list(summary) == fields
    assert list(summary["evaluation"]) == ["start", "final"]
    assert list(summary["seconds"]) == ["train", "evaluation", "total", "stages"]
    for evaluated in summary["evaluation"].values():
        low, high = evaluated["pass@1_interval"]
        assert low <= evaluated["pass@1"] <= high
    seconds, reader = summary["seconds"], RunReader(folder)
    assert sum(seconds["stages"].values()) <= seconds["train"]
    assert seconds["train"] + seconds["evaluation"] <= seconds["total"]
    recorded = {stage: s for stage, s in seconds["stages"].items() if stage not in ("save", "doctor")}
    assert recorded == pytest.approx(reader.stage_seconds(), abs=1e-3)
    assert summary["tokens"] == reader.history.series("flow/tokens_sampled").values.sum()
    assert summary["steps"] == len(reader.history) == 5


def test_every_evaluation_equals_a_recount_of_its_file(folder: Path):
    told = {event["label"]: event for event in events(folder, Event.EVALUATED)}
    assert list(told) == ["start", "step 2", "step 4", "final"]
    assert [told[label]["step"] for label in told] == [0, 2, 4, 5]
    for label, event in told.items():
        stored = evaluation(folder, label.replace(" ", "-"))
        results = stored["results"]
        assert len({r["prompt_id"] for r in results}) == event["prompts"] == 6
        assert event["answers"] == sum(r["attempted"] for r in results) == 24
        assert event["truncated"] == pytest.approx(sum(r["truncated"] for r in results) / 24)
        for k in (1, 2):
            expected = np.mean([pass_at_k(r["graded"], sum(r["correct"]), k) for r in results])
            assert event[f"pass@{k}"] == pytest.approx(expected)
        if label != "start":
            before = {
                r["prompt_id"]: r["right"] / r["graded"] for r in evaluation(folder, "start")["results"]
            }
            change = np.mean([r["right"] / r["graded"] - before[r["prompt_id"]] for r in results])
            assert event["against_start"]["difference"] == pytest.approx(change)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["evaluation"]["final"]["pass@1"] == told["final"]["pass@1"]
    assert RunReader(folder).evaluations.series("evaluation/pass@1").steps.tolist() == [0, 2, 4, 5]


def test_the_page_shows_an_evaluation_as_it_is_written(folder: Path):
    page = (Path(__file__).parents[2] / "docs" / "record.md").read_text(encoding="utf-8")
    section = page.split("\n## evaluations/LABEL.json\n", 1)[1]
    shown = json.loads(section.split("```json\n", 1)[1].split("```", 1)[0])
    written = evaluation(folder, "final")
    assert list(shown) == list(written)
    assert list(shown["results"][0]) == list(written["results"][0])


def test_evaluating_the_checkpoint_again_gives_the_same_numbers(folder: Path, model: Path):
    run = tiny_run(model, DAPO, run={"steps": 5}, evaluation={"every": 2, "samples": 4})
    again = launch.evaluate(run, folder=folder, step=None, view=SilentView())
    final = json.loads((folder / "summary.json").read_text())["evaluation"]["final"]
    for name in ("pass@1", "pass@1_interval", "pass@2", "mean_length", "truncated", "against_start"):
        assert again[name] == final[name]


def test_held_out_prompts_are_never_trained_on(folder: Path):
    reader = RunReader(folder)
    trained = {row.prompt_id for step in reader.rollout_steps() for row in reader.rollouts(step)}
    texts = {row.prompt for step in reader.rollout_steps() for row in reader.rollouts(step)}
    held_out = {r["prompt_id"] for r in evaluation(folder, "start")["results"]}
    assert len(trained) > 10
    assert len(texts) == len(trained)
    assert trained.isdisjoint(held_out)


def test_every_sampled_group_is_recorded_once_or_waits_in_the_checkpoint(folder: Path):
    reader = RunReader(folder)
    rows = [row for step in reader.rollout_steps() for row in reader.rollouts(step)]
    decided = {row.group for row in rows}
    assert len({row.key for row in rows}) == len(rows) == 4 * len(decided)
    waiting = [key for event in events(folder, Event.GROUPS_WAITING) for key in event["groups"]]
    assert waiting, "the tiny run must end with a group that waits; change its seed"
    stored = load_groups(folder / "checkpoints" / "step-000005" / "loop" / "carried")
    assert [scored.group.key for scored in stored] == waiting
    assert decided.isdisjoint(waiting)
    assert len(decided) + len(waiting) == reader.history.series("flow/draws").values.sum()


def test_without_held_out_prompts_nothing_is_evaluated(model: Path, tmp_path: Path):
    run = tiny_run(model, run={"steps": 1}, data={"held_out": 0}, evaluation={"every": 1})
    summary, view = train_silently(run, tmp_path / "run")
    assert summary["evaluation"] == {}
    assert summary["seconds"]["evaluation"] == 0.0
    assert view.evaluations == []
    assert not (tmp_path / "run" / "evaluations").exists()
    assert events(tmp_path / "run", Event.EVALUATED) == []


# ------------------------------------------------------------------------------ runs that go on


def test_a_finished_run_goes_on_when_its_steps_are_raised(model: Path, tmp_path: Path):
    """Two steps and then two more equal four, and no second counts twice."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    began = time.perf_counter()
    train_silently(tiny_run(model, DAPO, run={"steps": 2}), parts)
    saved = json.loads((parts / "checkpoints" / "step-000002" / "loop" / "loop.json").read_text())
    resumed = time.perf_counter()
    summary, _ = train_silently(tiny_run(model, DAPO, run={"steps": 4}), parts, resume=True)
    ended = time.perf_counter()
    expected, _ = train_silently(tiny_run(model, DAPO, run={"steps": 4}), whole)
    for evaluated in (*summary["evaluation"].values(), *expected["evaluation"].values()):
        evaluated.pop("seconds")
    assert summary["evaluation"] == expected["evaluation"]
    assert (summary["steps"], summary["tokens"]) == (expected["steps"], expected["tokens"])
    seconds = summary["seconds"]
    assert seconds["train"] + seconds["evaluation"] <= seconds["total"] <= ended - began
    assert 0 < saved["total_seconds"] < resumed - began
    assert 0.5 * (ended - resumed) < seconds["total"] - saved["total_seconds"] <= ended - resumed
    assert [event["changed"] for event in events(parts, Event.RESUMED)] == [{"run.steps": [2, 4]}]


def test_a_finished_run_with_nothing_left_to_do_is_left_alone(model: Path, tmp_path: Path):
    run = tiny_run(model, run={"steps": 1})
    summary, _ = train_silently(run, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    again, view = train_silently(run, tmp_path / "run", resume=True)
    assert again == summary
    assert "has finished its 1 steps" in view.messages[0]
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("sections", "error", "said"),
    [
        ({"data": {"train_prompts": 30}}, DataError, "begun with other prompts"),
        ({"data": {"held_out": 5}}, DataError, "begun with other held-out prompts"),
        ({"run": {"steps": 6, "seed": 4}}, DataError, "begun with seed 3, not 4"),
        ({"run": {"steps": 1}}, RunError, "has done 2 steps already, run.steps = 1 asks for fewer"),
    ],
)
def test_a_run_is_not_resumed_as_another_one(
    sections: dict[str, Any], error: type[Exception], said: str, model: Path, two_steps: Path
):
    before = (two_steps / "events.jsonl").read_bytes()
    with pytest.raises(error, match=said):
        train_silently(tiny_run(model, **{"run": {"steps": 6}, **sections}), two_steps, resume=True)
    assert (two_steps / "events.jsonl").read_bytes() == before, "the refused attempt leaves no trace"


@pytest.fixture(scope="module")
def two_steps(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("two") / "run"
    train_silently(tiny_run(model, run={"steps": 2}), path)
    return path


def test_a_new_run_never_lands_on_an_old_one(model: Path, two_steps: Path):
    with pytest.raises(RunError, match="already holds a run"):
        train_silently(tiny_run(model), two_steps)
    (two_steps / "run.json").rename(two_steps / "gone.json")
    try:
        with pytest.raises(RunError, match="already holds a run"):
            train_silently(tiny_run(model), two_steps)
    finally:
        (two_steps / "gone.json").rename(two_steps / "run.json")


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Python's own reaction to Ctrl-C, which a process started in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PressingView(SilentView):
    """Presses Ctrl-C after a step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def step(self, step: int, values: Mapping[str, float]) -> None:
        super().step(step, values)
        if step == self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("keyboard")
def test_an_interruption_from_the_keyboard_stops_cleanly_and_the_run_goes_on(model: Path, tmp_path: Path):
    run, folder = tiny_run(model, DAPO), tmp_path / "run"
    view = PressingView(at=3)
    with pytest.raises(KeyboardInterrupt):
        launch.train(run, folder=folder, view=view)
    assert len(view.steps) == 3
    assert RunReader(folder).status().state is State.STOPPED
    [stopped] = events(folder, Event.STOPPED)
    assert (stopped["reason"], stopped["step"]) == ("interrupted", 3)
    summary, _ = train_silently(run, folder, resume=True)
    whole, _ = train_silently(run, tmp_path / "whole")
    assert summary["tokens"] == whole["tokens"]
    assert summary["evaluation"]["final"]["pass@1"] == whole["evaluation"]["final"]["pass@1"]
    assert RunReader(folder).status().state is State.FINISHED


@pytest.mark.usefixtures("keyboard")
def test_an_interruption_takes_effect_before_the_next_update(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    update, calls = LocalTrainer.update, []

    async def pressing(self: LocalTrainer, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return await update(self, *args)

    monkeypatch.setattr(LocalTrainer, "update", pressing)
    run = tiny_run(model, trainer={"updates_per_step": 4, "epochs": 3})
    with pytest.raises(KeyboardInterrupt):
        train_silently(run, tmp_path / "run")
    assert len(calls) == 3
