"""The model of the recipe for code rewards: complete, small, and what its card says it is."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.cli.cold_start import settings_of
from trimtab.config import resolve
from trimtab.data.tasks.programs import solution
from trimtab.loop.cold_start import CARD, weights_hash
from trimtab.models import load_model, resolve_path


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(resolve_path("embedded/programs"))


@pytest.fixture(scope="module")
def card(folder):
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def test_the_weights_are_those_of_the_card_and_small(folder, card):
    assert weights_hash(folder) == card["sha256"]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2_000_000
    assert card["parameters"] <= 1_000_000


def test_the_command_in_the_card_is_how_it_was_made(folder, card):
    from dataclasses import asdict

    text = (folder / "README.md").read_text(encoding="utf-8")
    [command] = [line.split() for line in text.splitlines() if line.strip().startswith("trimtab cold-start")]
    assert command[:4] == ["trimtab", "cold-start", "--to", "DIR"]
    assert card["settings"] == json.loads(json.dumps(asdict(settings_of(command[4:]))))


def test_it_leaves_reinforcement_learning_something_to_do(card):
    measured = card["evaluation"]
    assert measured["prompts"] >= 256
    assert measured["ungraded"] == 0
    assert 0.25 <= measured["pass@1"] <= 0.5
    assert measured["pass@8"] >= 0.8


def test_it_loads_and_its_tokenizer_goes_there_and_back(folder, card):
    model = load_model(str(folder), device="cpu")
    assert model.module.num_parameters() == card["parameters"]
    text = solution("f(x): list of v+2 for v in x, v at least 4\n")
    ids = model.tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert model.tokenizer.decode(ids) == text


def test_the_recipe_fits_the_model_and_how_it_was_measured(card):
    run = resolve("programs")
    settings = card["settings"]
    assert run.model.path == f"embedded/{run.data.task}"
    assert run.sampling.max_new_tokens == settings["max_new_tokens"]
    assert (run.data.held_out, run.evaluation.samples) == (settings["measured"], settings["samples"])
    assert [grader.name for grader in run.reward.graders] == ["code"]
