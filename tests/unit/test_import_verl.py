"""verl's file logger and rollout dumps; the files are written by hand, see fixtures/README.md."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trimtab.catalog import find
from trimtab.record.importers import Wishes, import_run
from trimtab.record.reader import RunReader
from trimtab.types import GradeState

VERL = Path(__file__).parents[1] / "fixtures" / "verl"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    to = tmp_path_factory.mktemp("runs") / "verl"
    import_run(VERL, to)
    return RunReader(to)


def test_names_scales_and_steps(reader):
    assert list(reader.history.times.steps) == list(range(6))
    metrics = reader.history.metrics(0)
    assert metrics["reward/mean"] == 0.375
    assert metrics["kl/old_k1"] == 0.00011
    assert metrics["memory/device_peak_bytes"] == 41.5 * 2**30
    assert metrics["seconds/sample"] == 8.25
    assert reader.history.value(2, "evaluation/pass@1") == pytest.approx(0.37)
    for key in reader.history.keys:
        find(key)


def test_a_name_that_means_something_else_here_is_kept_apart(reader):
    assert "value/return" not in reader.history.keys, "there is no critic in this run"
    assert "imported/critic/returns/mean" in reader.history.keys
    assert "imported/actor/pg_clipfrac_lower" in reader.history.keys


def test_the_validation_before_training_is_kept(reader):
    assert reader.run["facts"]["imported"]["before_training"]["val-core/openai/gsm8k/acc/mean@1"] == 0.31


def test_a_nan_is_missing_with_its_reason(reader):
    assert "optimizer/grad_norm" not in reader.history.metrics(3)
    assert reader.history.missing(3) == {"optimizer/grad_norm": "actor/grad_norm was nan"}


def test_shuffled_answers_find_their_groups(reader):
    assert reader.rollout_steps() == [0, 1, 2]
    rows = reader.rollouts(1)
    assert [len([row for row in rows if row.group == key]) for key in {row.group for row in rows}] == [4] * 4
    for row in rows:
        right = row.text.endswith(f"#### {row.answer}")
        assert row.grade is (GradeState.RIGHT if right else GradeState.WRONG)
        assert row.reward == row.value == float(right)
    assert reader.history.value(1, "groups/all_right") == 0.25
    assert reader.run["run"]["sampling"] == {"samples_per_prompt": 4, "max_new_tokens": 512}
    assert "updates_per_step" not in json.dumps(reader.run["run"]), "no file tells it"


def test_a_log_alone_and_a_dump_alone(tmp_path):
    log = import_run(VERL / "metrics.jsonl", tmp_path / "log")
    dump = import_run(VERL / "rollouts", tmp_path / "dump")
    assert (log.steps, log.answers) == (6, 0)
    assert (dump.steps, dump.answers) == (3, 48)
    assert RunReader(tmp_path / "dump").history.value(0, "reward/outcome") is not None


def test_a_step_that_comes_again_counts_as_it_came_last(tmp_path):
    lines = (VERL / "metrics.jsonl").read_text().splitlines()
    again = json.dumps({"step": 4, "data": {"critic/score/mean": 0.9}})
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, again]) + "\n")
    import_run(tmp_path / "metrics.jsonl", tmp_path / "run")
    history = RunReader(tmp_path / "run").history
    assert history.last_step == 3
    assert history.metrics(3) == {"reward/mean": 0.9}


def test_held_out_dumps_beside_those_of_training_are_left_alone(tmp_path):
    shutil.copytree(VERL, tmp_path / "verl")
    shutil.copytree(VERL / "rollouts", tmp_path / "verl" / "val_generations")
    assert import_run(tmp_path / "verl", tmp_path / "run").answers == 48


def test_rewards_of_plus_and_minus_one_are_read_as_grades(tmp_path):
    rows = [
        {"input": "q", "output": "a", "score": score, "step": 1, "gts": "7"}
        for score in (1.0, -1.0, -1.0, 1.0)
    ]
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = import_run(tmp_path / "dump", tmp_path / "run")
    assert done.grades == "-1 is taken as wrong, 1 as right"
    values = [row.value for row in RunReader(tmp_path / "run").rollouts(0)]
    assert values == [1.0, 0.0, 0.0, 1.0]


def test_another_part_of_the_reward_can_be_the_outcome(tmp_path):
    rows = [
        {"input": "q", "output": "a", "score": 0.3 + i, "step": 1, "acc_reward": float(i)} for i in (0, 1)
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_run(tmp_path / "1.jsonl", tmp_path / "run", wishes=Wishes(outcome="acc_reward"))
    found = RunReader(tmp_path / "run").rollouts(0)
    assert [(row.value, row.reward) for row in found] == [(0.0, 0.3), (1.0, 1.3)]
