"""Two real runs of TRL become run directories that say what TRL said."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from trimtab.catalog import find
from trimtab.doctor.whatif_groups import GroupCounts, shares_by_size
from trimtab.errors import DataError, RunError, SettingError
from trimtab.record.importers import Wishes, import_run
from trimtab.record.reader import RunReader, State
from trimtab.types import Finish, GradeState

TRL = Path(__file__).parents[1] / "fixtures" / "trl"


@pytest.fixture(scope="module")
def ok(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    to = tmp_path_factory.mktemp("runs") / "ok"
    import_run(TRL / "ok", to)
    return RunReader(to)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    to = tmp_path_factory.mktemp("runs") / "len"
    import_run(TRL / "len", to)
    return RunReader(to)


def log(name: str) -> list[dict]:
    state = json.loads((TRL / name / "trainer_state.json").read_text())
    return [entry for entry in state["log_history"] if "train_runtime" not in entry]


def test_two_optimizer_steps_on_one_generation_are_one_step(ok):
    entries = log("ok")
    assert ok.history.last_step == 19
    assert len(ok.history) == 20 == len(entries) // 2
    assert ok.run["run"]["trainer"] == {"updates_per_step": 2}
    for step in (0, 7, 19):
        first, second = entries[2 * step], entries[2 * step + 1]
        metrics = ok.history.metrics(step)
        assert metrics["length/mean"] == first["completions/mean_length"]
        assert metrics["reward/mean"] == first["reward"]
        assert metrics["policy/entropy"] == pytest.approx((first["entropy"] + second["entropy"]) / 2)
        assert metrics["seconds/step"] == pytest.approx(first["step_time"] + second["step_time"])
        assert metrics["imported/num_tokens"] == first["num_tokens"]


def test_every_key_is_in_the_catalogue_and_the_unknown_ones_are_marked(ok, long):
    for reader in (ok, long):
        for key in reader.history.keys:
            find(key)
    assert "imported/clip_ratio/high_max" in ok.history.keys
    assert "epoch" not in "".join(ok.history.keys)
    assert "kl/reference_k3" in long.history.keys
    assert "kl/reference_k3" not in ok.history.keys


def test_answers_are_taken_once_and_agree_with_the_log(ok):
    assert ok.rollout_steps() == list(range(20))
    rows = ok.rollouts(0)
    assert len(rows) == 256
    assert len({row.group for row in rows}) == 32
    assert {row.index for row in rows} == set(range(8))
    entry = log("ok")[0]
    assert np.mean([row.reward for row in rows]) == pytest.approx(entry["reward"])
    assert np.mean([row.length for row in rows]) == pytest.approx(entry["completions/mean_length"], abs=0.5)
    assert np.corrcoef([row.length for row in rows], [len(row.text) for row in rows])[0, 1] > 0.999
    assert ok.history.value(0, "reward/outcome") == pytest.approx(entry["reward"])
    assert ok.history.value(0, "groups/uniform") == pytest.approx(entry["frac_reward_zero_std"])


def test_rows_say_what_is_known_and_nothing_else(ok):
    row = ok.rollouts(3)[0]
    assert row.grade in (GradeState.RIGHT, GradeState.WRONG)
    assert row.parts.keys() == {"correct"}
    assert row.finish is Finish.STOP, "no answer of this step was cut off"
    assert (row.seed, row.versions, row.tokens, row.update, row.answer) == (None, (), None, None, None)
    table = pq.read_table(ok.folder.rollouts_of(3))
    assert table.column("token_ids").null_count == table.num_rows


def test_a_prompt_drawn_again_has_another_group(ok):
    keys = {row.group for step in ok.rollout_steps() for row in ok.rollouts(step)}
    prompts = {row.prompt_id for step in ok.rollout_steps() for row in ok.rollouts(step)}
    rows = sum(len(ok.rollouts(step)) for step in ok.rollout_steps())
    assert len(keys) == rows // 8
    assert len(prompts) <= len(keys)


def test_rewards_beyond_one_are_no_grades_but_show_that_length_pays(long):
    rows = long.rollouts(10)
    assert {row.grade for row in rows} == {None}
    assert {row.value for row in rows} == {None}
    assert "reward/outcome" not in long.history.keys
    within = long.history.series("reward/length_correlation_within").values
    assert np.median(within) > 0.8
    assert long.run["facts"]["imported"]["grades"].startswith("rewards from 0.3 to 1.13 are no grades")
    assert long.run["run"]["sampling"] == {"samples_per_prompt": 8, "max_new_tokens": 96}
    assert {row.finish for row in rows} == {None}, "some were cut off, the files do not say which"


def test_a_scale_makes_them_grades(tmp_path):
    import_run(TRL / "len", tmp_path / "run", wishes=Wishes(scale=(0.0, 2.0)))
    rows = RunReader(tmp_path / "run").rollouts(0)
    assert rows[0].value == pytest.approx(rows[0].reward / 2.0)
    assert rows[0].grade is GradeState.PARTIAL


def test_the_doctor_tells_the_sick_run_from_the_healthy_one(ok, long):
    from trimtab.doctor.case import case_of
    from trimtab.doctor.diagnose import diagnose

    sick = diagnose(case_of(long)).found
    assert {finding.severity for finding in diagnose(case_of(ok)).found} <= {"note"}
    assert {"length-growth", "truncation"} <= {finding.rule for finding in sick}
    assert {finding.causes[0].name for finding in sick} == {"reward-pays-length"}
    growth = next(finding for finding in sick if finding.rule == "length-growth")
    assert growth.causes[0].name == "reward-pays-length"


def test_group_sizes_of_an_imported_run(ok):
    counts = GroupCounts()
    for step in ok.rollout_steps():
        counts.add(ok.rollouts(step))
    assert counts.size == 8
    assert [share.size for share in shares_by_size(counts)] == [2, 4, 8, 16, 32]


def test_provenance_and_end(ok):
    about = ok.run["facts"]["imported"]
    assert about["from"] == "trl"
    assert about["step"] == "(number in the files - 1) // 2"
    assert "ddof 1" in about["names"]["reward/std"]
    assert len(about["files"]) == 41
    assert ok.status().state is State.STOPPED
    assert ok.status().detail == "imported from trl; its files end at optimizer step 40 of 40"
    assert "20 files of answers repeat" in "".join(about["left_out"])
    times = ok.history.times.values
    assert (np.diff(times) > 0).all()


def test_what_the_user_says_counts(tmp_path):
    tables = {"algorithm": {"name": "gspo"}, "sampling": {"temperature": 0.7}}
    import_run(TRL / "ok", tmp_path / "run", tables=tables, wishes=Wishes(updates_per_step=4, group_size=4))
    run = RunReader(tmp_path / "run").run["run"]
    assert run["algorithm"] == {"name": "gspo"}
    assert run["sampling"] == {"samples_per_prompt": 4, "temperature": 0.7}
    assert run["trainer"] == {"updates_per_step": 4}
    reader = RunReader(tmp_path / "run")
    assert len(reader.history) == 10
    assert {row.index for row in reader.rollouts(0)} == {0, 1, 2, 3}


def test_the_last_checkpoints_state_is_found(tmp_path):
    for step in (9, 40):
        (tmp_path / "out" / f"checkpoint-{step}").mkdir(parents=True)
        text = (TRL / "ok" / "trainer_state.json").read_text() if step == 40 else "{}"
        (tmp_path / "out" / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    assert import_run(tmp_path / "out", tmp_path / "run").steps == 20


def test_a_pickle_beside_it_is_never_opened(tmp_path):
    out = tmp_path / "out"
    shutil.copytree(TRL / "ok", out)
    trap = tmp_path / "opened"
    payload = b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    (out / "training_args.bin").write_bytes(payload)
    import_run(out, tmp_path / "run")
    assert not trap.exists()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="overwrites nothing"):
        import_run(TRL / "ok", tmp_path / "run")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "notes.txt"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda to: import_run(TRL / "nobody", to), DataError),
        (lambda to: import_run(TRL, to), DataError),
        (lambda to: import_run(TRL / "ok", to, kind="wandb"), SettingError),
        (lambda to: import_run(TRL / "ok", to, wishes=Wishes(outcome="corect")), SettingError),
        (lambda to: import_run(TRL / "ok", to, tables={"algorithm": "grpo"}), SettingError),
    ],
)
def test_mistakes_leave_nothing_behind(tmp_path, make, why):
    with pytest.raises(why):
        make(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
