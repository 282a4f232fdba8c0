"""The doctor on recorded runs of the fault benchmark: it blames the fault first, and healthy ones not."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from benchmarks.doctor.asking import ours
from benchmarks.doctor.faults import FAULTS
from benchmarks.doctor.peers.rldoctor import trainer_state
from benchmarks.doctor.score import judge_ours

from trimtab.record.reader import RunReader

FOLDER = Path(__file__).parents[1] / "fixtures" / "doctor"
RUNS = sorted(FOLDER.glob("*.zip"))
ACCEPTED = {fault.cause: fault.accepted for fault in FAULTS}
LARGEST_BYTES = 3_000_000


def cause_of(path):
    cause = path.stem.partition("--")[0]
    return None if cause == "healthy" else cause


def unpacked(path, to):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(to)
    return to


FAULTY = [path for path in RUNS if cause_of(path)]
HEALTHY = [path for path in RUNS if not cause_of(path)]


def test_there_are_runs_of_both_kinds_and_they_are_small():
    assert len(FAULTY) >= 12
    assert len(HEALTHY) >= 5
    assert sum(path.stat().st_size for path in RUNS) < LARGEST_BYTES


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_the_fault_is_blamed_first(path, tmp_path):
    cause = cause_of(path)
    judged = judge_ours(path.stem, cause, ACCEPTED[cause], ours(unpacked(path, tmp_path)))
    assert judged.first, f"first cause {judged.named}; said {judged.alarms}"


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_run_raises_no_critical_alarm(path, tmp_path):
    judged = judge_ours(path.stem, None, frozenset(), ours(unpacked(path, tmp_path)))
    assert not judged.critical, f"first cause {judged.named}; said {judged.alarms}"


def test_another_package_gets_the_columns_that_its_framework_would_log(tmp_path):
    by_name = {path.stem.split("--")[1]: path for path in HEALTHY}
    clipped = trainer_state(RunReader(unpacked(by_name["grpo"], tmp_path / "grpo")))
    first = clipped["log_history"][1]
    assert {"reward", "reward_std", "frac_reward_zero_std", "entropy", "kl", "grad_norm"} <= first.keys()
    assert {"clip_ratio/region_mean", "completions/clipped_ratio", "rewards/answer/mean"} <= first.keys()
    assert sum("eval_reward" in row for row in clipped["log_history"]) == 5
    assert clipped["num_generations"] == 8
    soft = trainer_state(RunReader(unpacked(by_name["sapo"], tmp_path / "sapo")))
    assert not any(name.startswith("clip_ratio") for row in soft["log_history"] for name in row)
