"""The doctor beside a run: what it tells while training, when it stops, and the checkpoint that it keeps."""
# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest

from tests.tiny_runs import tiny_run, train_silently
from trimtab.doctor.config import DoctorConfig
from trimtab.errors import RunError, SettingError
from trimtab.record.layout import RunFolder
from trimtab.record.reader import RunReader

CONSTANT = f"{Path(__file__).parents[1].joinpath('tiny_grader.py')}:always_half"
SICK = {"reward": {"graders": [{"name": CONSTANT}], "truncated": "grade"}}


def sick_run(model, **doctor):
    record = {"checkpoint_every": 1, "keep_checkpoints": 1, "tokens": 2}
    return tiny_run(
        model,
        run={"steps": 7, "seed": 3},
        data={"task": "sums", "held_out": 0, "train_prompts": 40},
        record=record,
        doctor={"every": 1, **doctor},
        **SICK,
    )


def events_of(folder, *kinds):
    return [event for event in RunReader(folder).events if event["event"] in kinds]


@pytest.fixture(scope="module")
def stopped(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("live") / "run"
    run = sick_run(model, stop_on="critical")
    with pytest.raises(RunError, match="the doctor stopped the run") as fault:
        train_silently(run, folder)
    return run, folder, str(fault.value)


def test_a_sick_run_stops_and_names_finding_cause_and_checkpoint(stopped):
    _, folder, message = stopped
    assert "constant-reward" in message
    assert "reward-constant" in message
    assert "step-000003" in message
    assert RunReader(folder).status().state == "stopped"


def test_the_last_healthy_checkpoint_outlives_the_sick_ones(stopped):
    _, folder, _ = stopped
    assert RunFolder(folder).checkpoint_steps() == [3, 4]
    healthy = [event["checkpoint"] for event in events_of(folder, "healthy")]
    assert healthy == ["step-000001", "step-000002", "step-000003"]


def test_findings_are_lines_events_and_one_plain_sentence_each(stopped):
    _, folder, _ = stopped
    reader = RunReader(folder)
    found = {finding.rule: finding for finding in reader.findings()}
    assert found["constant-reward"].causes[0].name == "reward-constant"
    assert [event["rule"] for event in events_of(folder, "found")] == [f.rule for f in reader.findings()]
    assert reader.damage == []
    lines = [json.loads(line) for line in RunFolder(folder).findings.read_text().splitlines()]
    assert all(line["time"] > 0 and "severity" in line for line in lines)


def test_a_resumed_run_knows_what_was_told_and_what_is_healthy(stopped):
    run, folder, _ = stopped
    before = RunFolder(folder).findings.read_text()
    with pytest.raises(RunError, match="the last healthy checkpoint is step-000003"):
        train_silently(run, folder, resume=True)
    assert RunFolder(folder).findings.read_text() == before, "nothing new to say, nothing written"
    assert 3 in RunFolder(folder).checkpoint_steps()


def test_without_a_stop_the_run_ends_and_the_healthy_checkpoint_is_kept(model, tmp_path):
    _, view = train_silently(sick_run(model), tmp_path / "run")
    told = [message for message in view.messages if "constant-reward" in message]
    assert len(told) == 1, "said once"
    assert told[0].startswith("step 4: CRITICAL constant-reward")
    assert RunFolder(tmp_path / "run").checkpoint_steps() == [3, 7]


def test_the_doctor_can_be_left_out(model, tmp_path):
    _, view = train_silently(sick_run(model, every=0), tmp_path / "run")
    assert not RunFolder(tmp_path / "run").findings.exists()
    assert events_of(tmp_path / "run", "healthy", "found") == []
    assert not any("CRITICAL" in message for message in view.messages)


def test_its_seconds_are_a_stage_of_the_summary(model, tmp_path):
    summary, _ = train_silently(sick_run(model), tmp_path / "run")
    assert 0 < summary["seconds"]["stages"]["doctor"] < summary["seconds"]["train"]


@pytest.mark.parametrize(
    ("settings", "message"), [({"every": -1}, ">= 0"), ({"stop_on": "critcal"}, "critical")]
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        DoctorConfig(**settings)
