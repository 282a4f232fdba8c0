"""A run that is killed anywhere and resumed equals the uninterrupted one, bit for bit.

Each run is a process of its own that is really killed (SIGKILL): at random moments, in the middle of
writing a checkpoint, and between its files. Compared are all metrics but timings, all sampled
tokens and what was recorded of them, the final weights and optimizer state, and the evaluation.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.tiny_runs import model_folder, tiny_run, train_silently
from trimtab.record.reader import RunReader
from trimtab.trainer.checkpoint import latest_checkpoint

PROCESSES = multiprocessing.get_context("forkserver")
TIMINGS = ("seconds/", "tokens_per_second/", "memory/")
DAPO = {"name": "dapo", "overlong_buffer": 4}
CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "grpo": ({"name": "grpo"}, {"epochs": 2}),
    "dapo": (DAPO, {}),
    "gspo": ({"name": "gspo"}, {"schedule": "cosine", "warmup_updates": 2}),
    "sapo": ({"name": "sapo"}, {"weight_decay": 0.1}),
    "ppo-head": ({"name": "ppo"}, {"critic": "head"}),
    "ppo-model": ({"name": "ppo"}, {"critic": "model", "old_logprobs": "recompute"}),
    "entropy-target": (
        {**DAPO, "terms": {"entropy": {"coef": 1e-3}}, "entropy_target": {"target": 3.0}},
        {},
    ),
}


def attempt(model: Path, case: str, folder: Path, resume: bool, die_at_rename: int | None) -> None:
    """The body of a child process. ``die_at_rename``: be killed instead of the n-th rename of a folder."""
    algorithm, trainer = CASES[case]
    run = tiny_run(model, algorithm, trainer={"updates_per_step": 2, "learning_rate": 2e-3, **trainer})
    if die_at_rename is not None:
        replace, seen = os.replace, [0]

        def dying(source: Any, target: Any) -> None:
            if Path(source).is_dir() and "step-" in Path(source).name:
                seen[0] += 1
                if seen[0] == die_at_rename:
                    os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = dying
    train_silently(run, folder, resume=resume)


def run_once(
    model: Path,
    case: str,
    folder: Path,
    *,
    resume: bool,
    kill_at: int | None = None,
    die_at: int | None = None,
) -> bool:
    """Whether the run came to its end. ``kill_at``: killed a random moment after so many recorded steps."""
    child = PROCESSES.Process(target=attempt, args=(model, case, folder, resume, die_at))
    child.start()
    if kill_at is not None:
        while child.is_alive() and recorded_steps(folder) < kill_at:
            time.sleep(0.005)
        time.sleep(random.uniform(0.0, 0.2))
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode == 0


def recorded_steps(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    PROCESSES.set_forkserver_preload(["trimtab.launch", "tests.tiny_runs"])
    return model_folder(tmp_path_factory.mktemp("model"))


def compared(folder: Path) -> dict[str, Any]:
    """Everything of a run that must not depend on where it was interrupted."""
    reader = RunReader(folder)
    metrics = {
        step: {k: v for k, v in reader.history.metrics(step).items() if not k.startswith(TIMINGS)}
        for step in reader.history.times.steps.tolist()
    }
    rollouts = {
        step: pq.read_table(reader.folder.rollouts_of(step)).to_pydict()
        for step in reader.folder.rollout_steps()
    }
    newest = latest_checkpoint(reader.folder.checkpoints)
    assert newest is not None
    tensors = {
        str(file.relative_to(newest.path)): file.read_bytes()
        for file in sorted(newest.path.rglob("*.safetensors"))
    }
    loop = json.loads((newest.path / "loop" / "loop.json").read_text())
    state = {name: loop[name] for name in ("counters", "cursor", "memory")}
    evaluations = {
        path.name: {**json.loads(path.read_text()), "seconds": 0}
        for path in (folder / "evaluations").glob("*.json")
    }
    return {
        "metrics": metrics,
        "rollouts": rollouts,
        "tensors": tensors,
        "state": state,
        "evaluations": evaluations,
    }


def assert_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for part, expected in one.items():
        assert other[part].keys() == expected.keys(), part
        for name, value in expected.items():
            assert repr(other[part][name]) == repr(value), f"{part}: {name} differs"


@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_moments(case: str, model: Path, tmp_path: Path) -> None:
    assert run_once(model, case, tmp_path / "whole", resume=False)
    finished = [
        run_once(model, case, tmp_path / "torn", resume=kills > 0, kill_at=kill_at)
        for kills, kill_at in enumerate((1, 2, 3))
    ]
    assert not all(finished), "the run was never killed; it must be killed earlier"
    if not finished[-1]:
        assert run_once(model, case, tmp_path / "torn", resume=True)
    assert_same(compared(tmp_path / "whole"), compared(tmp_path / "torn"))


@pytest.mark.parametrize("die_at", [1, 2, 4])
def test_killed_in_the_middle_of_saving(die_at: int, model: Path, tmp_path: Path) -> None:
    assert run_once(model, "dapo", tmp_path / "whole", resume=False)
    assert not run_once(model, "dapo", tmp_path / "torn", resume=False, die_at=die_at)
    assert run_once(model, "dapo", tmp_path / "torn", resume=True)
    assert_same(compared(tmp_path / "whole"), compared(tmp_path / "torn"))


def test_dynamic_sampling_carries_groups_through_a_kill(model: Path, tmp_path: Path) -> None:
    """The dapo case is only a test of carried groups if some are carried when it is killed."""
    assert run_once(model, "dapo", tmp_path / "whole", resume=False)
    carried = [
        value
        for step in range(4)
        if (value := RunReader(tmp_path / "whole").history.value(step, "flow/groups_carried_out"))
    ]
    assert carried, "no step carried a group; change the seed or the sizes of the tiny run"
