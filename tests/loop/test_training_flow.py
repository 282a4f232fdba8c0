"""Whole runs on a random tiny model: what a run does, says and records, and how it fails."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.asynchronous import OwnEngine
from tests.tiny_runs import tiny_run, train_silently
from trimtab.algorithms import ALGORITHMS
from trimtab.catalog import find
from trimtab.errors import RunError
from trimtab.models import LoadedModel
from trimtab.record.events import Event
from trimtab.record.reader import RunReader, State
from trimtab.trainer import updating
from trimtab.trainer.local import LocalTrainer

DAPO = {"name": "dapo", "overlong_buffer": 4}
NO_CHECKPOINTS = {"checkpoint_every": 100, "tokens": "all"}


def events(folder: Path, kind: Event) -> list[dict[str, Any]]:
    return [event for event in RunReader(folder).events if event["event"] == kind]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_trainer_in_bfloat16_is_not_held_to_the_ratios_of_float32(model: Path, tmp_path: Path):
    run = tiny_run(model, DAPO, run={"steps": 2}, trainer={"autocast": True}, record=NO_CHECKPOINTS)
    summary, _ = train_silently(run, tmp_path / "run")
    assert summary["steps"] == 2
    (ratio,) = (e for e in events(tmp_path / "run", Event.CHECKED) if e["check"].startswith("ratio is 1"))
    assert ratio["limit"] == 0.01
    assert 0.0 < ratio["value"] < 0.01


def test_a_bfloat16_model_is_not_held_to_the_ratios_of_an_engine_in_float32(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
):
    """An engine of its own, in float32 as ``cluster.vllm.dtype`` can ask for it."""

    def engine(held: LoadedModel, fast: str) -> OwnEngine:
        own = OwnEngine(held)
        own.model.module.float()
        return own

    monkeypatch.setattr("trimtab.launch.plant.LocalEngine", engine)
    run = tiny_run(model, DAPO, run={"steps": 2}, record=NO_CHECKPOINTS)
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, dtype="bfloat16"))
    train_silently(run, tmp_path / "run")
    (ratio,) = (e for e in events(tmp_path / "run", Event.CHECKED) if e["check"].startswith("ratio is 1"))
    assert ratio["limit"] == 0.01
    assert 1e-4 < ratio["value"] < 0.01


# ------------------------------------------------------------------------------ every algorithm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_and_records_only_what_the_catalogue_knows(
    name: str, model: Path, tmp_path: Path
):
    table = DAPO if name == "dapo" else {"name": name}
    run = tiny_run(model, table, run={"steps": 2}, record=NO_CHECKPOINTS)
    summary, view = train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert len(reader.history) == 2
    for key in reader.history.keys:
        find(key)
    assert not [reader.history.missing(step) for step in (0, 1) if reader.history.missing(step)]
    assert summary["algorithm"] == name
    assert reader.status().state is State.FINISHED
    assert reader.history.value(0, "optimizer/updates") + reader.history.value(0, "optimizer/skipped") == 2
    said = "without a trust region" if name == "rloo" else "can act in the other 1"
    assert said in "\n".join(view.lines)
    assert ("kl/reference_k3" in reader.history.keys) == (name in ("grpo", "ppo"))
    assert ("value/explained_variance" in reader.history.keys) == (name == "ppo")
    recompute_ratios(reader, sequence=name.startswith("gspo"))


def recompute_ratios(reader: RunReader, *, sequence: bool) -> None:
    """Every recorded ratio of every trained token, from the log-probabilities beside it."""
    compared = 0
    for row in (row for step in reader.rollout_steps() for row in reader.rollouts(step)):
        if row.tokens is None or row.tokens.ratios is None:
            continue
        assert row.tokens.trained is not None
        log_ratio = (row.tokens.new_logprobs - row.tokens.old_logprobs)[row.tokens.trained]
        if sequence:
            log_ratio = np.full_like(log_ratio, log_ratio.astype(np.float64).mean())
        np.testing.assert_allclose(row.tokens.ratios[row.tokens.trained], np.exp(log_ratio), rtol=2e-6)
        compared += int(row.tokens.trained.sum())
    assert compared > 50


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ({"updates_per_step": 1, "epochs": 1}, "1 update a step: every ratio is 1, so the trust region"),
        ({"updates_per_step": 2, "epochs": 2}, "can act in the other 3"),
    ],
)
def test_the_start_says_whether_clips_can_act_and_the_gates_agree(
    trainer: Mapping[str, int], said: str, model: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        {"name": "grpo", "clip_low": 1e-4, "clip_high": 1e-4},
        run={"steps": 2},
        trainer={**trainer, "learning_rate": 2e-2},
        record=NO_CHECKPOINTS,
    )
    _, view = train_silently(run, tmp_path / "run")
    assert said in "\n".join(view.lines)
    removed = [values["clip/removed"] for values in view.steps]
    assert all(share == 0.0 for share in removed) == (trainer["updates_per_step"] == 1)


# ------------------------------------------------------------------------------ sampler and trainer


@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "sapo"])
def test_case_22_a_learning_rate_of_0_changes_nothing(algorithm: str, model: Path, tmp_path: Path):
    table = DAPO if algorithm == "dapo" else {"name": algorithm}
    run = tiny_run(model, table, run={"steps": 3}, trainer={"learning_rate": 0.0}, record=NO_CHECKPOINTS)
    train_silently(run, tmp_path / "run")
    before, after = weights(model), weights(tmp_path / "run" / "checkpoints" / "step-000003" / "model")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    reader = RunReader(tmp_path / "run")
    assert reader.history.series("optimizer/updates").values.sum() > 0, "the updates were really made"
    assert reader.history.series("mismatch/logprob_max").values.max() < 1e-5
    assert reader.history.series("ratio/token_max").values.max() < 1 + 1e-5


def test_case_18_at_temperature_0_6_the_first_ratio_is_1(model: Path, tmp_path: Path):
    sampling = {"temperature": 0.6}
    train_silently(tiny_run(model, run={"steps": 3}, sampling=sampling), tmp_path / "run")
    checks = events(tmp_path / "run", Event.CHECKED)
    assert [check["check"] for check in checks] == [
        "a rollout is the same alone and in a batch",
        "ratio is 1 before the first update",
        "an update changes the published weights",
        "engine follows the trainer's weights",
    ]
    assert all(check["passed"] for check in checks)
    assert checks[1]["value"] < 1e-5


@pytest.fixture
def forgotten_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    build = LocalTrainer.__init__

    def forgetting(self: LocalTrainer, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **{**kwargs, "temperature": 1.0})

    monkeypatch.setattr(LocalTrainer, "__init__", forgetting)


@pytest.mark.usefixtures("forgotten_temperature")
@pytest.mark.parametrize("skip_silent", [False, True])
def test_case_18_a_forgotten_temperature_fails_the_check_with_suspects(
    skip_silent: bool, model: Path, tmp_path: Path
):
    run = tiny_run(
        model,
        {"name": "grpo", "kl_coef": 0.0},
        sampling={"temperature": 0.6},
        trainer={"skip_silent": skip_silent},
    )
    with pytest.raises(RunError, match="ratio is 1 before the first update.*the temperature is missing"):
        train_silently(run, tmp_path / "run")
    assert RunReader(tmp_path / "run").status().state is State.STOPPED
    assert RunReader(tmp_path / "run").rollouts(0), "what was sampled is there to be looked at"


@pytest.mark.usefixtures("forgotten_temperature")
def test_the_check_waits_for_a_step_that_can_be_checked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A first step whose updates have no forward pass shows nothing, and must not pass for a check."""
    skipped = iter([True] * 2)  # both updates of step 0
    reason = updating.nothing_to_train
    monkeypatch.setattr(
        updating, "nothing_to_train", lambda batch: "told to skip" if next(skipped, False) else reason(batch)
    )
    run = tiny_run(model, {"name": "grpo", "kl_coef": 0.0}, sampling={"temperature": 0.6})
    with pytest.raises(RunError, match="ratio is 1 before the first update"):
        train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert len(reader.history) == 1, "step 0 passed unseen, step 1 was checked"
    assert reader.history.value(0, "optimizer/skipped") == 2
    assert "mismatch/logprob" not in reader.history.metrics(0), "nothing was compared, so nothing is shown"


# ------------------------------------------------------------------------------ schedule


def test_the_schedule_counts_updates_and_neither_draws_nor_skips(model: Path, tmp_path: Path):
    run = tiny_run(model, DAPO, trainer={"schedule": "linear"}, record=NO_CHECKPOINTS)
    train_silently(run, tmp_path / "run")
    history, done = RunReader(tmp_path / "run").history, 0
    for step in range(4):
        applied = int(history.value(step, "optimizer/updates"))
        rates = [2e-3 * (1 - (done + update) / 8) for update in range(applied)]
        assert history.value(step, "optimizer/learning_rate") == pytest.approx(np.mean(rates))
        done += applied
    assert history.series("flow/draws").values.sum() > 16, "more was drawn than trained on"


def test_both_samplers_are_told_where_they_differ(model: Path, tmp_path: Path):
    run = tiny_run(model, run={"steps": 1}, evaluation={"temperature": 0.5}, record=NO_CHECKPOINTS)
    _, view = train_silently(run, tmp_path / "run")
    assert any(line.startswith("sampler: temperature 1,") for line in view.lines)
    assert any(line.startswith("evaluation sampler: temperature 0.5,") for line in view.lines)


# ------------------------------------------------------------------------------ small steps


@pytest.mark.parametrize("name", ["dapo", "ppo"])
def test_a_step_with_fewer_groups_than_updates_cuts_its_groups(name: str, model: Path, tmp_path: Path):
    table = {**DAPO, "selection": {"max_draws": 4, "carry": False}} if name == "dapo" else {"name": "ppo"}
    trainer = {"updates_per_step": 4, "epochs": 2}
    run = tiny_run(model, table, run={"steps": 2}, trainer=trainer, record=NO_CHECKPOINTS)
    _, view = train_silently(run, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    trained = reader.history.series("flow/groups_trained").values
    updates = reader.history.series("optimizer/updates").values
    updates = updates + reader.history.series("optimizer/skipped").values
    assert updates.tolist() == [8, 8]
    if name == "dapo":
        assert trained.min() < 4
        assert any("of 4 groups" in message for message in view.messages)
    for step in (0, 1):
        for row in reader.rollouts(step):
            if row.tokens is not None and row.tokens.advantages is not None and name == "dapo":
                assert len(set(row.tokens.advantages.tolist())) == 1, "cut after the advantages were made"
