"""Damaged files of other trainers: what is whole is imported, the rest is listed, nothing is half written."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trimtab.errors import DataError
from trimtab.record.importers import import_run
from trimtab.record.reader import RunReader

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def trl(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "trl" / "ok", tmp_path / "trl")
    return tmp_path / "trl"


@pytest.mark.parametrize("share", [0.3, 0.77, 0.99])
def test_a_log_that_was_cut_off_gives_its_whole_entries(trl, tmp_path, share):
    state = trl / "trainer_state.json"
    text = state.read_text()
    state.write_text(text[: int(len(text) * share)])
    done = import_run(trl, tmp_path / "run")
    assert "trainer_state.json is cut off" in done.complaints[0]
    history = RunReader(tmp_path / "run").history
    whole = json.loads(text)["log_history"]
    for step in history.series("reward/mean").steps[:3]:
        assert history.value(step, "reward/mean") == whole[2 * step]["reward"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"log_history": 3}', '{"log_history": [{"step"'])
def test_a_log_without_a_whole_entry_is_refused(trl, tmp_path, text):
    (trl / "trainer_state.json").write_text(text)
    with pytest.raises(DataError, match=r"trainer_state\.json"):
        import_run(trl, tmp_path / "run")
    assert not list(tmp_path.glob(".run*"))


def test_answers_that_cannot_be_read_are_listed(trl, tmp_path):
    bad = trl / "completions" / "completions_00005.parquet"
    bad.write_bytes(bad.read_bytes()[:1000])
    (trl / "completions" / "completions_00006.parquet").write_bytes(b"")
    done = import_run(trl, tmp_path / "run")
    assert sum("cannot be read" in complaint for complaint in done.complaints) == 2
    reader = RunReader(tmp_path / "run")
    assert reader.rollout_steps() == [step for step in range(20) if step != 2]
    assert "reward/outcome" not in reader.history.metrics(2)
    assert [e["message"] for e in reader.events if e["event"] == "warned"] == [
        f"import: {complaint}" for complaint in done.complaints
    ]


def test_lines_of_verl_that_are_no_json_are_listed(tmp_path):
    shutil.copytree(FIXTURES / "verl", tmp_path / "verl")
    log = tmp_path / "verl" / "metrics.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:3], lines[3][:50], *lines[4:], '{"step": 9']))
    dump = tmp_path / "verl" / "rollouts" / "2.jsonl"
    dump.write_bytes(dump.read_bytes()[:-40])
    done = import_run(tmp_path / "verl", tmp_path / "run")
    assert [c for c in done.complaints if c.startswith("metrics.jsonl, line")] == [
        "metrics.jsonl, line 4: no valid JSON, left out",
        "metrics.jsonl, line 8: no valid JSON, left out",
    ]
    assert any(c.startswith("2.jsonl, line") for c in done.complaints)
    assert list(RunReader(tmp_path / "run").history.times.steps) == [0, 1, 2, 3, 4, 5]
    assert 2 not in RunReader(tmp_path / "run").history.series("reward/mean").steps


def test_a_killed_import_leaves_no_run_and_the_next_one_works(trl, tmp_path, monkeypatch):
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trimtab.record.importers.writing._write_description", killed)
        with pytest.raises(KeyboardInterrupt):
            import_run(trl, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert (tmp_path / ".run.part").exists()
    assert import_run(trl, tmp_path / "run").steps == 20
    assert not (tmp_path / ".run.part").exists()


def test_hostile_names_and_texts_stay_text(tmp_path):
    (tmp_path / "in").mkdir()
    data = {"a\x1b[31m/b": 1.0, "x" * 5000: 2.0, "critic/score/mean": 0.5, "flag": True, "text": "no"}
    (tmp_path / "in" / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": data}) + "\n")
    row = {"input": "\x1b]0;owned\x07", "output": "../../etc", "score": 1.0}
    (tmp_path / "in" / "1.jsonl").write_text(json.dumps(row) + "\n")
    import_run(tmp_path / "in", tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert all("\x1b" not in key and len(key) < 300 for key in reader.history.keys)
    assert reader.rollouts(0)[0].prompt == "\x1b]0;owned\x07"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "run.json",
        "metrics.jsonl",
        "events.jsonl",
        "rollouts",
    }
