"""The run directory, written and read back: numbers, histograms, events, status, resume."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.scenes import evaluation, everything
from trimtab.errors import DataError, RunError
from trimtab.metrics import Bins, Histogram, Mean, Sum, histograms, read
from trimtab.record.reader import RunReader, State
from trimtab.record.summary import Summary
from trimtab.record.writer import RunRecord

RUN = {"name": "x", "trainer": {"lr": 1e-3, "epochs": 1}}
SEEDS = {"run": 7}


def create(path: Path, **more) -> RunRecord:
    return RunRecord.create(path, run=RUN, seeds=SEEDS, **more)


def resume(path: Path, step: int, run=RUN) -> RunRecord:
    return RunRecord.resume(path, step=step, run=run, seeds=SEEDS)


SUMMARY = Summary(
    algorithm="dapo",
    start={"pass@1": 0.4, "pass@1_interval": [0.35, 0.45]},
    final={"pass@1": 0.9, "pass@1_interval": [0.85, 0.93]},
    steps=2,
    tokens=100,
    train_seconds=10.0,
    evaluation_seconds=2.0,
    total_seconds=13.0,
    stages={"sample": 6.0, "update": 3.5},
    peak_memory_bytes=123,
)


def test_a_run_is_read_back_as_it_was_written(tmp_path):
    metrics = everything()
    with create(tmp_path / "x", facts={"prompts": 9}) as record:
        record.step(1, metrics)
        record.step(2, {"reward/outcome": Mean(3.0, 4.0)})
        record.event("saved", 2, checkpoint="step-000002")
        record.finish(SUMMARY, 2)
    reader = RunReader(tmp_path / "x")
    assert reader.history.metrics(1) == read(metrics).values
    assert reader.history.metrics(2) == {"reward/outcome": 0.75}
    assert reader.history.series("reward/outcome").steps.tolist() == [1, 2]
    assert reader.history.series("nothing").steps.tolist() == []
    assert reader.history.value(2, "loss/total") is None
    assert reader.distributions(1) == histograms(metrics)
    assert reader.distributions(2) == {}
    assert reader.distribution_steps() == [1]
    assert [event["event"] for event in reader.events] == ["started", "saved", "finished"]
    assert reader.status().state is State.FINISHED
    assert reader.summary() == SUMMARY.to_json()
    assert (reader.damage, reader.torn) == ([], {})
    assert reader.run["run"] == RUN
    assert reader.run["seeds"] == SEEDS
    assert reader.run["facts"] == {"prompts": 9}
    assert reader.run["versions"].keys() >= {"python", "torch", "numpy"}
    assert reader.run["hardware"]["cores"] >= 1
    assert reader.stage_seconds() == {"sample": 2.0, "grade": 0.5}


def test_summary_has_the_form_others_build_on():
    assert SUMMARY.to_json() == {
        "algorithm": "dapo",
        "evaluation": {
            "start": {"pass@1": 0.4, "pass@1_interval": [0.35, 0.45]},
            "final": {"pass@1": 0.9, "pass@1_interval": [0.85, 0.93]},
        },
        "steps": 2,
        "tokens": 100,
        "seconds": {
            "train": 10.0,
            "evaluation": 2.0,
            "total": 13.0,
            "stages": {"sample": 6.0, "update": 3.5},
        },
        "peak_memory_bytes": 123,
    }


def test_what_is_missing_is_written_with_its_reason(tmp_path):
    with create(tmp_path / "x") as record:
        record.step(1, {"policy/entropy": Mean.of([1.0, float("nan")]), "pass/at_1": Mean.of([])})
        written = [json.loads(line) for line in (tmp_path / "x/metrics.jsonl").read_text().splitlines()]
        reader = RunReader(tmp_path / "x")
    assert written[0]["metrics"] == {}
    assert written[0]["missing"] == {"policy/entropy": "1 values were NaN or infinite"}
    assert reader.history.missing(1) == written[0]["missing"]
    assert reader.history.missing(2) == {}


def test_a_directory_with_a_run_is_not_overwritten(tmp_path):
    create(tmp_path / "x").close()
    with pytest.raises(RunError, match="already holds a run"):
        create(tmp_path / "x")
    with pytest.raises(RunError, match="no run to resume"):
        resume(tmp_path / "y", 1)


def test_two_writers_are_refused_also_from_another_process(tmp_path):
    with create(tmp_path / "x"):
        with pytest.raises(RunError, match=r"is being written by process \d+"):
            resume(tmp_path / "x", 0)
        code = (
            "import sys; from pathlib import Path; from trimtab.record.lock import RunLock, is_held\n"
            "path = Path(sys.argv[1]); assert is_held(path)\n"
            "try: RunLock.take(path)\n"
            "except Exception as error: print(type(error).__name__)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "x/.lock")],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
        assert done.stdout.strip() == "RunError"
    resume(tmp_path / "x", 0).close()


def test_after_a_resume_the_last_line_of_a_step_counts_and_the_given_up_branch_is_gone(tmp_path):
    path = tmp_path / "x"
    shape = Bins("linear", 0, 1, 2)

    def metrics(value: float):
        return {"reward/outcome": Mean.of(value), "gate/positive": Histogram.of([value], shape)}

    record = create(path)
    for step in (1, 2, 3, 4):
        record.step(step, metrics(step / 10))
    record.close()
    live = RunReader(path)
    with resume(path, 2) as record:
        record.step(3, metrics(0.9))
        live.refresh()
        for reader in (live, RunReader(path)):
            series = reader.history.series("reward/outcome")
            assert series.steps.tolist() == [1, 2, 3]
            assert series.values.tolist() == pytest.approx([0.1, 0.2, 0.9])
            assert len(reader.history) == reader.history.last_step == 3
            assert reader.distribution_steps() == [1, 2, 3]
            assert reader.distributions(3)["gate/positive"].value == pytest.approx(0.9)
            assert reader.distributions(4) == {}
            assert [event["event"] for event in reader.events] == ["started", "resumed"]
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 5, "nothing was erased"


def test_a_resume_tells_what_changed_and_takes_the_old_summary_away(tmp_path):
    path = tmp_path / "x"
    with create(path) as record:
        record.finish(SUMMARY)
    assert RunReader(path).summary() is not None
    created = RunReader(path).run["created"]
    with resume(path, 2, {"name": "x", "trainer": {"lr": 5e-4, "epochs": 1, "clip": 1.0}}):
        reader = RunReader(path)
        assert reader.events[-1]["changed"] == {"trainer.lr": [1e-3, 5e-4], "trainer.clip": [None, 1.0]}
        assert reader.run["run"]["trainer"]["lr"] == 5e-4
        assert reader.run["created"] == created
        assert reader.summary() is None
        assert reader.status().state is State.RUNNING


def test_status_is_what_can_be_known(tmp_path):
    record = create(tmp_path / "x")
    reader = RunReader(tmp_path / "x")
    assert reader.status().state is State.RUNNING
    record.close()
    assert reader.status().state is State.KILLED
    with pytest.raises(ZeroDivisionError), resume(tmp_path / "x", 0):
        raise ZeroDivisionError("division by zero")
    reader.refresh()
    status = reader.status()
    assert status.state is State.STOPPED
    assert "ZeroDivisionError: division by zero" in status.detail
    resume(tmp_path / "x", 0).close()
    reader.refresh()
    assert reader.status().state is State.KILLED, "an end before the last begin is none"
    (tmp_path / "x/.lock").write_text('[1, "another machine"]')
    status = reader.status()
    assert status.state is State.UNKNOWN
    assert "another machine" in status.detail
    assert status.quiet_seconds < 60


def test_unknown_events_are_refused(tmp_path):
    with create(tmp_path / "x") as record, pytest.raises(ValueError, match="exploded"):
        record.event("exploded")


def test_damaged_lines_are_reported_and_skipped(tmp_path):
    path = tmp_path / "x"
    with create(path) as record:
        record.step(1, {"flow/draws": Sum(1.0)})
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'\x00\x00garbage\n[1]\n{"step": 2}\n')
    with resume(path, 1) as record:
        record.step(2, {"flow/draws": Sum(2.0)})
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":3,"ti')
    reader = RunReader(path)
    assert reader.history.series("flow/draws").values.tolist() == [1.0, 2.0]
    assert [damage.file for damage in reader.damage] == ["metrics.jsonl"] * 3
    assert "no metrics" in reader.damage[2].why or "no time" in reader.damage[2].why
    assert reader.torn == {"metrics.jsonl": 13}


def test_what_is_no_run_or_too_new_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a run directory"):
        RunReader(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(DataError, match="install a newer trimtab"):
        RunReader(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        RunReader(tmp_path)


def test_lines_of_many_threads_stay_whole(tmp_path):
    with create(tmp_path / "x") as record:
        threads = [
            threading.Thread(
                target=lambda i=i: [record.event("warned", message=f"{i}" * 500) for _ in range(50)]
            )
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    reader = RunReader(tmp_path / "x")
    assert reader.damage == []
    assert len(reader.events) == 201


def test_evaluations_are_curves_too_and_follow_the_branch_that_counts(tmp_path):
    with create(tmp_path / "x") as record:
        for step, value in ((0, 0.1), (10, 0.2), (20, 0.9)):
            record.event("evaluated", step, label=f"step {step}", **(evaluation() | {"pass@1": value}))
    with resume(tmp_path / "x", 5) as record:
        record.event("evaluated", 10, label="step 10", **(evaluation() | {"pass@1": 0.3}))
    curve = RunReader(tmp_path / "x").evaluations.series("evaluation/pass@1")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([0, 10], [0.1, 0.3])
