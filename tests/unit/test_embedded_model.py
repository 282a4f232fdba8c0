"""The model in the package: complete, small, and what its card says it is."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.config import resolve
from trimtab.loop.cold_start import CARD, ColdStart, weights_hash
from trimtab.models import load_model, resolve_path

LARGEST_WEIGHTS = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(resolve_path("embedded/sums"))


@pytest.fixture(scope="module")
def card(folder):
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def test_the_weights_are_those_of_the_card(folder, card):
    assert weights_hash(folder) == card["sha256"]


def test_it_is_small(folder, card):
    assert (folder / "model.safetensors").stat().st_size <= LARGEST_WEIGHTS
    assert 400_000 <= card["parameters"] <= 2_000_000


def test_the_defaults_of_a_cold_start_are_how_it_was_made(card):
    from dataclasses import asdict

    assert card["settings"] == json.loads(json.dumps(asdict(ColdStart(task="sums"))))


def test_it_leaves_reinforcement_learning_something_to_do(card):
    measured = card["evaluation"]
    assert measured["prompts"] == 512
    assert measured["pass@1"] <= 0.45
    assert measured["pass@1"] >= 0.25
    assert measured["pass@8"] >= 0.8
    assert 0.02 <= measured["truncated"] <= 0.2


def test_it_loads_and_its_tokenizer_goes_there_and_back(folder, card):
    model = load_model(str(folder), device="cpu")
    assert model.module.num_parameters() == card["parameters"]
    assert model.stop_ids == (model.tokenizer.eos_token_id,)
    text = "7-12=-5\nwait, -5+9=4\n#4"
    ids = model.tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert model.tokenizer.decode(ids) == text


def test_the_quickstart_recipe_fits_the_model_and_how_it_was_measured(card):
    run = resolve("quickstart")
    settings = card["settings"]
    assert run.model.path == f"embedded/{run.data.task}"
    assert run.sampling.max_new_tokens == settings["max_new_tokens"]
    assert (run.data.held_out, run.evaluation.samples) == (settings["measured"], settings["samples"])
    assert run.trainer.updates_per_step > 1
