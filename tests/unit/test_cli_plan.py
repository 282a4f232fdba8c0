"""``trimtab plan``: numbers alone, recipes, recorded runs, and what it refuses."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.tiny_runs import GRADER, model_folder, tiny_run, train_silently
from trimtab.cli import main
from trimtab.errors import DataError
from trimtab.planning.asked import Asked, question_of
from trimtab.planning.recording import Recording, read_recording
from trimtab.planning.splits import options

BIG = [
    "sampling.prompts_per_step=64",
    "sampling.samples_per_prompt=16",
    "sampling.max_new_tokens=8192",
    "trainer.updates_per_step=4",
    "trainer.tokens_per_micro_batch=16384",
    "trainer.gradient_checkpointing=true",
]
LENGTHS = ["--lengths", "2000,1500"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of a random tiny model, with dynamic sampling."""
    base = tmp_path_factory.mktemp("plan")
    run = tiny_run(
        model_folder(base / "model"),
        {"name": "dapo", "overlong_buffer": 4},
        run={"steps": 8},
        data={"held_out": 0},
        reward={"graders": [{"name": GRADER, "isolated": False}]},
        record={"checkpoint_every": 100, "tokens": 4},
    )
    train_silently(run, base / "run")
    return base / "run"


@pytest.fixture(scope="module")
def recording(folder: Path) -> Recording:
    return read_recording(folder)


def test_a_recording_knows_its_steps_groups_and_rounds(recording: Recording):
    assert recording.synchronous
    assert recording.prompt_counted
    assert len(recording.wall) == 6
    assert 1 <= len(recording.steps) <= 8
    for step in recording.steps:
        assert {"sample", "grade", "step"} <= set(step.seconds)
        assert all(len(group) == 4 for groups in step.rounds for group in groups)
        assert len(step.rounds[0]) >= 1
        assert len(step.trained) <= 4
    drawn = sum(len(groups) for step in recording.steps for groups in step.rounds)
    assert len(recording.lengths.groups) >= drawn - 4


def test_rounds_are_those_that_the_loop_counted(folder: Path, recording: Recording):
    from trimtab.record.reader import RunReader

    history = RunReader(folder).history
    counted = history.series("flow/rounds").values.tolist()
    found = [len(step.rounds) for step in recording.steps]
    assert found == [int(rounds) for rounds in counted][: len(found)]
    assert max(found) > 1


def test_its_own_layout_is_predicted_from_its_own_costs(folder: Path, recording: Recording):
    question = question_of(Asked(runs=(folder,), stalenesses=(0,)))
    found = {option.split.engines: option for option in options(question)}
    alone = found[0]
    assert alone.timed == median(recording.wall)
    stages = median(s.seconds["step"] for s in recording.settled)
    assert alone.predicted.step == pytest.approx(stages, rel=0.5)
    assert found[1].timed is None
    assert found[1].predicted.step > 0.0


def test_a_recorded_run_in_words(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--from", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "measured: answer length" in told
    assert (
        "assumed: slowdown on busy cores" in told.replace("\n    ", " ") or "slowdown on busy cores" in told
    )
    assert "one process" in told
    assert "measured" in told
    assert "unvalidated" in told


def test_lengths_of_a_run_and_a_data_sheet_go_together(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--from", str(folder), "--hardware", "h200", "--gpus", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    origins = {figure["name"]: figure["origin"] for figure in told["inputs"]}
    assert origins["answer length"] == "measured"
    assert origins["compute"] == "assumed"
    assert {option["split"]["engines"] for option in told["options"]} == {1}
    assert all(option["measured_step"] is None for option in told["options"])


def test_numbers_alone_are_enough_and_everything_says_where_it_is_from(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--params", "7B", "--gpus", "16", *LENGTHS, *BIG, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {figure["origin"] for figure in told["inputs"]} <= {"measured", "computed", "assumed"}
    assert {option["origin"] for option in told["options"]} == {"computed"}
    steps = [option["predicted"]["step"] for option in told["options"]]
    assert steps == sorted(steps)
    assert {option["split"]["staleness"] for option in told["options"]} == {0, 1}
    assert all(o["split"]["engines"] + o["split"]["trainers"] == 16 for o in told["options"])
    assert any(line.startswith("Unvalidated") for line in told["verdict"])


def test_the_verdict_says_who_waits(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--params", "7B", "--gpus", "8", "--staleness", "0", *LENGTHS, *BIG]) == 0
    told = capsys.readouterr().out
    assert "Engines wait" in told
    assert "for training and new weights" in told
    assert "Memory of 75 GiB: A trainer holds" in told
    assert "the best synchronous split" not in told


def test_more_engines_than_groups_are_told(capsys: pytest.CaptureFixture[str]):
    few = ["sampling.prompts_per_step=4", "sampling.samples_per_prompt=16", "sampling.max_new_tokens=4096"]
    assert main(["plan", "--params", "1B", "--gpus", "12", "--staleness", "0", *few]) == 0
    assert main(["plan", "--params", "1B", "--gpus", "500", "--staleness", "0", *few]) == 0
    assert "engines get nothing" in capsys.readouterr().out


def test_1024_gpus_take_less_than_two_seconds_of_computing():
    asked = Asked(
        parameters="32B",
        active="3B",
        gpus=1024,
        lengths="4000,3000",
        settings=(*BIG, "sampling.prompts_per_step=512"),
    )
    question = question_of(asked)
    began = time.process_time()
    found = options(question)
    assert time.process_time() - began < 2.0
    assert found[0].split.devices == 1024


def test_one_gpu_is_one_process(capsys: pytest.CaptureFixture[str]):
    small = ["--params", "500M", "--gpus", "1", "sampling.prompts_per_step=16", "sampling.max_new_tokens=512"]
    assert main(["plan", *small]) == 0
    told = capsys.readouterr().out
    assert "Fastest: one process" in told
    assert "One process does all in turn: " in told


def test_a_recipe_with_settings_and_a_device_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mine.toml"
    file.write_text(
        "flops = 1e14\nmemory = 2.4e10\nbandwidth = 1e12\nlink = 3e10\nnetwork = 1e9\nper_node = 2\n"
    )
    given = ["--hardware", str(file), "--gpus", "4", "--keep-rate", "0.5", "--prompt", "12"]
    assert main(["plan", "quickstart", *given, "sampling.prompts_per_step=16"]) == 0
    told = capsys.readouterr().out
    assert "prompts for 16 kept groups" in told
    assert "groups kept 0.5" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a recipe"),
        (["quickstart", "--hardware", "h1000"], "no hardware is called"),
        (["quickstart", "--gpus", "0"], "--gpus must be between"),
        (["--params", "7B", "--gpus", "1"], "fits into no split of 1 x H100"),
        (["--params", "1000B", "--gpus", "8"], "fits into no split"),
        (["quickstart", "--active", "1B"], "give both"),
        (["quickstart", "--lengths", "10"], "MEAN,SD"),
        (["quickstart", "--lengths", "a,b"], "takes numbers"),
        (["quickstart", "--lengths", "1000,10"], "max_new_tokens is 56"),
        (["quickstart", "--keep-rate", "0"], "keep rate"),
        (["quickstart", "--prompt", "0"], "at least 1 token"),
        (["quickstart", "--assume", "tock=1"], "did you mean 'tick'"),
        (["--params", "500M", "--gpus", "1", "--staleness", "1"], "cannot be asynchronous"),
        (["quickstart", "--from", "nowhere"], "is not a run directory"),
    ],
)
def test_what_cannot_be_planned_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_costs_of_a_file_are_used_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "costs.toml"
    file.write_text('tick = 0.01\nrow = 0\nupdate_token = 0\nupdate = 2\nmeasured_on = "a lab"\n')
    words = ["--costs", str(file), "--params", "1B", "--gpus", "2", "--lengths", "101,0,200", "--json"]
    assert main(["plan", *words, "trainer.updates_per_step=3", "--staleness", "0", "--engine", "local"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["options"][0]["predicted"]["step"] == pytest.approx(2 * 100 * 0.01 + 3 * 2)
    assert {f["name"]: f["origin"] for f in told["inputs"]}["tick"] == "measured"
    for text, said in (
        ("tick = 1", "lacks row, update_token"),
        ("tuck = 1", "did you mean 'tick'"),
        ("tick = -1", "number of seconds >= 0"),
        ("tick = ", "not valid TOML"),
        ("tick = 1\nrow = 0\nupdate_token = 0\ngraders = 0", "graders must be >= 1"),
    ):
        file.write_text(text)
        assert main(["plan", *words]) == 2
        assert said in capsys.readouterr().err


def test_several_runs_are_fitted_together_and_asynchronous_ones_only_give_lengths(
    folder: Path, recording: Recording
):
    import dataclasses

    from trimtab.planning.costs import Assumptions
    from trimtab.planning.fitting import fit_costs

    question = question_of(Asked(runs=(folder, folder)))
    assert len(question.lengths.draw(np.random.default_rng(0), 5, 4).lengths_GN) == 5
    cluster = dataclasses.replace(recording.run.cluster, engines=1, staleness=1)
    ahead = dataclasses.replace(recording, run=dataclasses.replace(recording.run, cluster=cluster))
    with pytest.raises(DataError, match="synchronous runs"):
        fit_costs([ahead], question.shape, question.device, Assumptions())


def test_the_probe_measures_this_machine():
    from trimtab.planning.probe import probe

    device = probe()
    assert device.flops > 1e8
    assert device.bandwidth > 1e8
    assert device.cores == 0 or device.slowdown >= 1.0
