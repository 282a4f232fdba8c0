"""A run written as JSON or TOML and read back is the same run, whatever its numbers and texts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recipes import recipe_in
from trimtab.config import (
    Run,
    RunSection,
    SamplingSection,
    overridden,
    resolve,
    resolved_lines,
    run_from_dict,
    run_to_dict,
)
from trimtab.data.prompts import DataConfig
from trimtab.models import ModelConfig
from trimtab.trainer import TrainerConfig


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return recipe_in(tmp_path)


def test_a_run_survives_json_exactly(recipe: Path):
    run = resolve(
        recipe,
        ["trainer.learning_rate=1.2345678901234567e-5", "sampling.stop=['\\u001b', 'ü']", "data.held_out=7"],
    )
    assert run_from_dict(json.loads(json.dumps(run_to_dict(run)))) == run


@settings(max_examples=50, deadline=None)
@given(
    lr=st.floats(min_value=1e-12, max_value=1.0),
    temperature=st.floats(min_value=1e-3, max_value=10.0),
    stop=st.lists(st.text(min_size=1, max_size=5).filter(lambda t: t.isprintable()), max_size=3),
    seed=st.integers(min_value=0, max_value=2**62),
)
def test_any_numbers_and_texts_survive_json_and_toml(
    lr: float, temperature: float, stop: list[str], seed: int
):
    run = Run(
        run=RunSection(seed=seed),
        model=ModelConfig(path="x"),
        data=DataConfig(task="sums"),
        algorithm={"name": "grpo", "clip_low": 0.1},
        sampling=SamplingSection(temperature=temperature, stop=tuple(stop)),
        trainer=TrainerConfig(learning_rate=lr),
    )
    assert run_from_dict(json.loads(json.dumps(run_to_dict(run)))) == run
    assert run_from_dict(tomllib.loads("\n".join(resolved_lines(run)))) == run


def test_the_resolved_run_is_itself_a_recipe(recipe: Path, tmp_path: Path):
    run = resolve(recipe, ["data.map={answer='a b'}", "data.task=", "data.files=['x.jsonl']", "run.steps=3"])
    again = tmp_path / "again.toml"
    again.write_text("\n".join(resolved_lines(run)))
    assert resolve(again) == run


def test_infinities_survive_strict_json(recipe: Path):
    run = resolve(
        recipe,
        ["algorithm.selection.max_draws_factor=inf", "trainer.max_grad_norm=inf", "sampling.stop=['inf']"],
    )
    text = json.dumps(run_to_dict(run), allow_nan=False)
    assert run_from_dict(json.loads(text)) == run
    assert overridden(run, []) == run
    assert run.trainer.max_grad_norm == float("inf")
    assert run.algorithm["selection"]["max_draws_factor"] == float("inf")
