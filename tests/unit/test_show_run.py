"""A run as Markdown."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import script
from trimtab.errors import SettingError
from trimtab.metrics import Mean
from trimtab.record.config import RecordConfig
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.record.writer import RunRecord

shows = script("show_run")


def evaluation(label: str, value: float) -> dict[str, object]:
    return {
        "label": label,
        "pass@1": value,
        "pass@1_interval": [value - 0.1, value + 0.1],
        "prompts": 4,
        "answers": 32,
        "truncated": 0.25,
        "mean_length": 20.0,
        "temperature": 1.0,
    }


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """An unfinished run of four steps, evaluated at both ends."""
    folder = tmp_path / "run"
    with RunRecord.create(folder, run={}, seeds={"run": 0}, facts={}, config=RecordConfig()) as record:
        record.event(Event.EVALUATED, 0, **evaluation("start", 0.25))
        for step, value in enumerate((0.25, 0.25, 0.5, 1.0)):
            record.step(step, {"reward/outcome": Mean.of([value])})
        change = {"difference": 0.5, "interval": [0.375, 0.625], "verdict": "better"}
        record.event(Event.EVALUATED, 4, **evaluation("final", 0.75), against_start=change)
    return folder


def test_a_run_is_shown_as_table_and_curve(run_folder: Path):
    lines = list(shows.shown(RunReader(run_folder), "reward/outcome", 2))
    assert "| start | 0.250 [0.150, 0.350] | 20.0 | 25.0% |" in lines
    assert "| final | 0.750 [0.650, 0.850] | 20.0 | 25.0% |" in lines
    assert "final against start, paired over the prompts: +0.500 [+0.375, +0.625] pass@1 (better)." in lines
    bars = [line.split()[-1] for line in lines if line.startswith("steps")]
    assert [len(bar) for bar in bars] == [round(0.25 / 0.75 * shows.BAR), shows.BAR]


def test_an_unknown_metric_and_an_empty_window_are_errors(run_folder: Path):
    run = RunReader(run_folder)
    with pytest.raises(SettingError, match="did you mean 'reward/outcome'"):
        list(shows.shown(run, "reward/outcom", 2))
    with pytest.raises(SettingError, match="at least one step"):
        list(shows.shown(run, "reward/outcome", 0))


def test_the_cost_of_a_finished_run_comes_from_its_summary():
    seconds = {
        "train": 120.0,
        "evaluation": 60.0,
        "total": 200.0,
        "stages": {"update": 30.0, "collect": 90.0},
    }
    summary = {
        "algorithm": "dapo",
        "steps": 4,
        "tokens": 12345,
        "seconds": seconds,
        "peak_memory_bytes": 2**31,
    }
    first, second = shows.cost(summary)
    assert "4 steps, 12,345 response tokens: 2.0 min of training (30.0 s a step)" in first
    assert "2.0 GiB" in first
    assert second == "Where the training time went: collect 75%, update 25%."
