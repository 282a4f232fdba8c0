"""A cold start lowers the loss, repeats to the bit, and leaves a model and its card behind."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest
import torch

from tests.tiny import tiny_model
from trimtab.errors import SettingError
from trimtab.loop.cold_start import CARD, ColdStart, Imitation, cold_start, weights_hash
from trimtab.loop.fresh import TinyModel
from trimtab.models import export_model, load_model
from trimtab.types import Batch, ModelOutput

MINI = ColdStart(
    task="sums",
    fresh=TinyModel(layers=2, width=32, heads=2, kv_heads=1, inner=64),
    updates=60,
    batch=8,
    warmup_updates=10,
    measured=4,
    samples=2,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cold") / "model"
    told = []
    return folder, cold_start(MINI, folder, told.append), told


def test_it_lowers_the_loss_and_tells_how_far_it_is(made):
    _, summary, told = made
    assert [progress.update for progress in told] == [50, 60]
    assert summary.losses == tuple(progress.loss for progress in told)
    assert summary.losses[1] < summary.losses[0] - 0.5
    assert told[-1].tokens == summary.tokens > 60 * 8 * 20


def test_it_repeats_to_the_bit(made, tmp_path):
    _, summary, _ = made
    assert cold_start(MINI, tmp_path / "again").sha256 == summary.sha256


def test_another_seed_makes_another_model(made, tmp_path):
    from dataclasses import replace

    _, summary, _ = made
    other = cold_start(replace(MINI, seed=1, updates=2, measured=0), tmp_path / "other")
    assert other.sha256 != summary.sha256
    assert other.evaluation == {}


def test_the_card_tells_what_was_made(made):
    folder, summary, _ = made
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    assert card["sha256"] == summary.sha256 == weights_hash(folder)
    assert card["settings"]["fresh"]["layers"] == 2
    assert card["evaluation"]["answers"] == 8
    assert "pass@1_interval" in card["evaluation"]


def test_the_model_loads_and_ends_answers_with_its_end_token(made):
    folder, summary, _ = made
    model = load_model(str(folder), device="cpu")
    assert model.stop_ids == (model.tokenizer.eos_token_id,)
    assert model.module.num_parameters() == summary.parameters
    assert model.context == 256


def test_a_folder_that_is_there_is_left_alone(made):
    folder, summary, _ = made
    with pytest.raises(SettingError, match="already there"):
        cold_start(MINI, folder)
    assert weights_hash(folder) == summary.sha256


def test_it_continues_from_a_model_on_demonstrations_of_ones_own(tmp_path):
    base = tiny_model("qwen3")
    export_model(base.module, base.tokenizer, tmp_path / "base")
    path = tmp_path / "shown.jsonl"
    rows = [{"prompt": f"{n}+1=", "response": f"{n + 1}"} for n in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = ColdStart(
        demonstrations=str(path), model=str(tmp_path / "base"), updates=100, batch=4, learning_rate=1e-2
    )
    summary = cold_start(settings, tmp_path / "warm")
    assert summary.evaluation == {}
    assert summary.losses[1] < 0.5 < summary.losses[0]
    assert load_model(str(tmp_path / "warm")).module.config.model_type == "qwen3"


@pytest.mark.parametrize("given", [{}, {"task": "sums", "demonstrations": "x.jsonl"}])
def test_it_wants_one_source_of_demonstrations(given):
    with pytest.raises(SettingError, match="either a task or a file"):
        ColdStart(**given)


@pytest.mark.parametrize("wrong", [{"updates": 0}, {"batch": 0}, {"learning_rate": -1.0}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        ColdStart(task="sums", **wrong)


def test_imitation_is_the_negative_log_probability():
    logprobs_T = torch.tensor([-0.5, -2.0])
    batch = Batch.__new__(Batch)
    loss_T, _ = Imitation()(ModelOutput(logprobs_T=logprobs_T, entropy_T=logprobs_T), batch)
    assert loss_T.tolist() == [0.5, 2.0]
