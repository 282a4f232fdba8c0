"""The parts of the record: its settings, its folder, its table of seconds."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.errors import SettingError
from trimtab.record import RecordConfig
from trimtab.record.config import choose
from trimtab.record.layout import RunFolder
from trimtab.record.reader import RunReader
from trimtab.record.summary import evaluation_values, stage_table
from trimtab.record.writer import RunRecord, changes


def create(path: Path) -> RunRecord:
    return RunRecord.create(path, run={}, seeds={})


def resume(path: Path, step: int) -> RunRecord:
    return RunRecord.resume(path, step=step, run={}, seeds={})


def test_the_stage_table_adds_up():
    lines = stage_table({"update": 3.0, "sample": 6.0}, 10.0).splitlines()
    assert [line.split() for line in lines] == [
        ["sample", "6.00", "s", "60.0%"],
        ["update", "3.00", "s", "30.0%"],
        ["(other)", "1.00", "s", "10.0%"],
    ]
    assert stage_table({}, 0.0) == ""


def test_changes_between_settings():
    assert changes({"a": {"b": 1}, "c": [1]}, {"a": {"b": 2}, "c": [1]}) == {"a.b": [1, 2]}
    assert changes({"a": 1}, {}) == {"a": [1, None]}
    assert changes({}, {}) == {}


def test_leftovers_of_a_killed_writer_are_removed_and_never_counted(tmp_path):
    path = tmp_path / "x"
    create(path).close()
    folder = RunFolder(path)
    folder.rollouts.mkdir()
    (folder.rollouts / ".000003.parquet.part").write_bytes(b"half")
    (folder.checkpoints / ".step-000003.part").mkdir(parents=True)
    for step in (1, 2, 10):
        (folder.checkpoint_of(step) / "model").mkdir(parents=True)
    reader = RunReader(path)
    assert reader.rollout_steps() == []
    assert folder.checkpoint_steps() == [1, 2, 10]
    resume(path, 2).close()
    assert not list(path.rglob("*.part"))


def test_the_tokenizer_is_kept_once(tmp_path):
    class Words:
        def save_pretrained(self, folder: str) -> None:
            Path(folder).mkdir()
            (Path(folder) / "words.txt").write_text("a b")

    with create(tmp_path / "x") as record:
        record.tokenizer(Words())
        record.tokenizer(Words())
    assert (tmp_path / "x/tokenizer/words.txt").read_text() == "a b"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rollouts": -1},
        {"rollouts": True},
        {"tokens": 1.0},
        {"tokens": 0.0},
        {"tokens": "some"},
        {"rollouts_every": 0},
        {"checkpoint_every": 0},
        {"keep_checkpoints": 0},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(SettingError, match=f"record.{next(iter(wrong))}"):
        RecordConfig(**wrong)


def test_what_is_chosen_depends_on_step_and_keys_alone():
    keys = [f"p#{i}" for i in range(40)]
    assert choose("all", keys, 1) == set(keys)
    assert choose(0, keys, 1) == set()
    some = choose(8, keys, 1)
    assert len(some) == 8
    assert some == choose(8, reversed(keys), 1)
    assert some != choose(8, keys, 2)
    assert len(choose(0.25, keys, 1)) == 10
    assert choose(100, keys, 1) == set(keys)


def test_numbers_of_an_evaluation():
    summary = {
        "pass@1": 0.5,
        "pass@1_interval": [0.4, 0.6],
        "maj@8": 0.7,
        "maj@8_interval": [0.6, 0.8],
        "prompts": 4,
        "answers": 32,
        "ungraded": 8,
        "truncated": 0.1,
        "mean_length": 12.5,
        "temperature": 1.0,
        "version": 3,
        "label": "final",
        "against_start": {"interval": [0, 1]},
    }
    assert evaluation_values(summary) == {
        "evaluation/pass@1": 0.5,
        "evaluation/pass@1_low": 0.4,
        "evaluation/pass@1_high": 0.6,
        "evaluation/maj@8": 0.7,
        "evaluation/maj@8_low": 0.6,
        "evaluation/maj@8_high": 0.8,
        "evaluation/truncated": 0.1,
        "evaluation/mean_length": 12.5,
        "evaluation/ungraded": 0.25,
    }
