"""A step's only update needs no pass of its own for the old log-probabilities."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_model
from tests.tiny_runs import model_folder, tiny_run, train_silently
from tests.trainers import annotate, batch_for, same, update, weights
from trimtab.record.reader import RunReader


def test_an_update_without_old_logprobs_trains_as_with_those_of_a_pass_before_it(build):
    model = tiny_model()
    batch = batch_for(model)
    assert "old_logprobs_T" not in batch.columns
    with_pass, without = build(copy.deepcopy(model)), build(model)
    assert without.old_from_update
    before = update(with_pass, annotate(with_pass, batch)).trace
    now = update(without, batch).trace
    assert before.ratio_T is not None
    assert now.ratio_T is not None
    assert (now.ratio_T == 1.0).all()
    torch.testing.assert_close(before.ratio_T, now.ratio_T, rtol=0, atol=1e-5)
    assert same(weights(with_pass), weights(without))


@pytest.mark.parametrize(
    "settings", [{"old_logprobs": "recompute"}, {"old_logprobs": "sampler"}, {"skip_silent": True}]
)
def test_it_is_offered_only_where_nothing_else_was_asked_for(build, settings):
    assert not build(tiny_model(), **settings).old_from_update


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny")


def trained(model: Path, folder: Path, updates: int) -> RunReader:
    """Two steps in bfloat16, where the sampler's log-probabilities are not the trainer's."""
    run = tiny_run(model, "grpo", run={"steps": 2}, trainer={"updates_per_step": updates})
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, dtype="bfloat16"))
    train_silently(run, folder)
    return RunReader(folder)


def test_a_run_with_one_update_a_step_has_the_ratio_one_and_records_it(model: Path, tmp_path: Path):
    reader = trained(model, tmp_path / "one", 1)
    assert reader.history.series("ratio/token").values.tolist() == [1.0, 1.0]
    rows = [row.tokens for row in reader.rollouts(1) if row.tokens is not None and row.update is not None]
    assert rows
    for tokens in rows:
        assert tokens.old_logprobs is not None
        assert (tokens.old_logprobs == tokens.new_logprobs).all()
        assert (tokens.old_logprobs != tokens.sampler_logprobs).any()


def test_several_updates_keep_the_pass_before_the_first_one(model: Path, tmp_path: Path):
    reader = trained(model, tmp_path / "two", 2)
    rows = [row.tokens for row in reader.rollouts(1) if row.tokens is not None and row.update is not None]
    moved = [abs(ratio - 1.0) for tokens in rows if tokens.ratios is not None for ratio in tokens.ratios]
    assert max(moved) > 1e-4
