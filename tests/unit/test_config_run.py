"""A whole run: resolved from recipes, refused where it contradicts itself, written out and read back."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.recipes import BASE, recipe_in
from trimtab.config import (
    Run,
    RunSection,
    SamplingSection,
    diff_from_defaults,
    opening_lines,
    overridden,
    recipe_names,
    resolution,
    resolve,
    run_from_dict,
    run_to_dict,
    three_numbers,
    unused,
)
from trimtab.config.validation import fields_of, known_paths
from trimtab.data.prompts import DataConfig
from trimtab.errors import SettingError
from trimtab.evaluation.config import EvaluationConfig
from trimtab.models import ModelConfig
from trimtab.rollout.engine import Sampling
from trimtab.trainer import TrainerConfig


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return recipe_in(tmp_path)


def refused(recipe: Path, *overrides: str) -> str:
    with pytest.raises(SettingError) as caught:
        resolve(recipe, overrides)
    return str(caught.value)


def test_a_recipe_and_python_make_the_same_run(recipe: Path):
    assert resolve(recipe, ["trainer.epochs=2"]) == Run(
        run=RunSection(name="base"),
        model=ModelConfig(path="some/model"),
        data=DataConfig(task="sums"),
        algorithm={"name": "dapo", "clip_high": 0.3},
        sampling=SamplingSection(max_new_tokens=100),
        trainer=TrainerConfig(epochs=2),
    )


def test_files_are_layered_and_the_first_gives_the_name(recipe: Path, tmp_path: Path):
    second = tmp_path / "second.toml"
    second.write_text("[run]\nsteps = 7\n[sampling]\nmax_new_tokens = 50\n")
    resolved = resolution([recipe, second], ["run.seed=3"])
    assert (resolved.run.run.steps, resolved.run.run.seed, resolved.run.run.name) == (7, 3, "base")
    assert [lost.path for lost in resolved.shadowed] == ["sampling.max_new_tokens"]


@pytest.mark.parametrize(
    ("file", "name"), [("my run (2).toml", "my-run-2"), (".toml", "toml"), ("-.toml", "run")]
)
def test_a_run_without_a_name_takes_what_its_file_offers(tmp_path: Path, file: str, name: str):
    (tmp_path / file).write_text(BASE)
    assert resolve(tmp_path / file).run.name == name


def test_every_recipe_of_the_package_resolves():
    for name in recipe_names():
        assert resolve(name).run.name


@pytest.mark.parametrize(
    ("overrides", "sentences"),
    [
        (["algorithm.clip_hihg=0.3"], ["algorithm.clip_hihg", "clip_high"]),
        (
            ["trainer.learnig_rate=1"],
            ["unknown setting trainer.learnig_rate", "the command line", "trainer.learning_rate"],
        ),
        (["trainer.temperature=1"], ["did you mean", "sampling.temperature"]),
        (["smapling.temperature=1"], ["unknown table smapling", "sampling"]),
        (
            ["algorithm.name=grpo", "sampling.samples_per_prompt=1"],
            ["samples_per_prompt", "single-rollout-groups"],
        ),
        (["algorithm.name=gspo", "algorithm.clip_low=0.2"], ["sequence ratio", "wide-sequence-clip"]),
        (["algorithm.name=sapo", "algorithm.tau_pos=0"], ["tau"]),
        (["algorithm.name=gspp"], ["unknown algorithm 'gspp'", "gspo"]),
        (["algorithm.overlong_buffer=100"], ["buffer", "100"]),
        (["sampling.temperature=0"], ["sampling.temperature must be > 0 and finite, got 0"]),
        (["sampling.temperature=inf"], ["sampling.temperature must be > 0 and finite, got inf"]),
        (["sampling.max_new_tokens=0"], ["sampling.max_new_tokens must be >= 1"]),
        (["sampling.prompts_per_step=0"], ["sampling.prompts_per_step must be >= 1"]),
        (
            ["sampling.prompts_per_step=many"],
            ["sampling.prompts_per_step (set by the command line) must be a whole"],
        ),
        (
            ["sampling.prompts_per_step=2", "trainer.updates_per_step=3"],
            ["trainer.updates_per_step is 3", "2 groups"],
        ),
        (["evaluation.ks=[1,16]"], ["pass@16", "evaluation.samples"]),
        (["evaluation.ks=[2]"], ["evaluation.ks must hold 1"]),
        (["evaluation.temperature=0"], ["evaluation.temperature must be > 0"]),
        (["evaluation.every=-1"], ["evaluation.every must be >= 0"]),
        (["run.steps=0"], ["run.steps must be >= 1"]),
        (["run.seed=-1"], ["run.seed must be >= 0"]),
        (["run.name=../up"], ["run.name"]),
        (["run.name=12"], ["run.name (set by the command line) must be a text in quotes", "'\"12\"'"]),
        (["model.path="], ["model.path needs a value"]),
        (["data.task="], ["data needs either task"]),
        (["reward.graders=[{name='anwser'}]"], ["anwser", "answer"]),
        (["algorithm.allow=wide-sequence-clip"], ["algorithm.allow must be a list"]),
        (["algorithm.selection.part=anwser"], ["selection.part", "did you mean 'answer'"]),
        (["algorithm=3"], ["table.key=value"]),
    ],
)
def test_what_cannot_be_is_refused_with_field_value_and_remedy(
    recipe: Path, overrides: list[str], sentences: list[str]
):
    message = refused(recipe, *overrides)
    assert [sentence for sentence in sentences if sentence not in message] == []
    assert "\n" not in message


def test_a_refusal_can_be_lifted_by_its_name_and_stays_in_the_run(recipe: Path):
    run = resolve(
        recipe, ["algorithm.name=gspo", "algorithm.clip_low=0.2", 'algorithm.allow=["wide-sequence-clip"]']
    )
    assert run_to_dict(run)["algorithm"]["allow"] == ["wide-sequence-clip"]
    assert run.build_algorithm().name == "gspo"


def test_the_samplers_of_training_and_evaluation_are_their_own(recipe: Path):
    run = resolve(recipe, ["sampling.temperature=0.8", "evaluation.temperature=0.5", 'sampling.stop=["\\n"]'])
    assert run.sampling.sampler() == Sampling(temperature=0.8, max_new_tokens=100, stop=("\n",))
    assert run.evaluation_sampler() == Sampling(temperature=0.5, max_new_tokens=100, stop=("\n",))
    longer = overridden(run, ["evaluation.max_new_tokens=300"])
    assert longer.evaluation_sampler().max_new_tokens == 300


def test_every_table_refuses_a_key_it_does_not_have():
    tables = {()} | {path[:end] for path in known_paths(Run) for end in range(1, len(path))}
    assert {("trainer",), ("data", "memory"), ("evaluation",)} <= tables
    for path in tables:
        tree: dict[str, Any] = {
            "model": {"path": "x"},
            "data": {"task": "sums"},
            "algorithm": {"name": "grpo"},
        }
        node = tree
        for name in path:
            node = node.setdefault(name, {})
        node["no_such_key"] = 1
        with pytest.raises(SettingError, match="unknown .*no_such_key"):
            run_from_dict(tree)


def test_the_difference_from_the_defaults_is_all_of_it_and_nothing_more(recipe: Path):
    lines = [str(d) for d in diff_from_defaults(resolve(recipe, ["algorithm.clip_low=0.2", "run.name=run"]))]
    assert lines == [
        'model.path = "some/model"',
        'data.task = "sums"',
        'algorithm.name = "dapo"',
        "algorithm.clip_high = 0.3   # default 0.28",
        "sampling.max_new_tokens = 100   # default 512",
    ]


def test_the_three_numbers_in_plain_units(recipe: Path):
    counts = ["sampling.prompts_per_step=10", "sampling.samples_per_prompt=4"]
    even = three_numbers(resolve(recipe, [*counts, "trainer.updates_per_step=2"]))
    assert even == (
        "10 prompts a step (groups that are trained on)",
        "4 samples a prompt: 10 x 4 = 40 rollouts a step",
        "2 updates a step: 2 x 1 (updates x epochs), each of 5 groups = 20 rollouts; "
        "every rollout is used once",
    )
    uneven = three_numbers(resolve(recipe, [*counts, "trainer.updates_per_step=4", "trainer.epochs=3"]))
    assert uneven[2] == (
        "12 updates a step: 4 x 3 (updates x epochs), each of 2 or 3 groups = 8 or 12 rollouts; "
        "every rollout is used 3 times"
    )


def test_opening_lines_say_whether_the_trust_region_can_act(recipe: Path):
    one = "\n".join(opening_lines(resolve(recipe, ["trainer.updates_per_step=1", "trainer.epochs=1"])))
    assert "inactive" in one
    two = "\n".join(opening_lines(resolve(recipe, ["trainer.updates_per_step=2"])))
    assert "can act" in two
    assert "Length penalty" in two


@pytest.mark.parametrize(
    ("overrides", "paths"),
    [
        ([], []),
        (["model.reference=other"], ["model.reference"]),
        (["model.reference=other", "algorithm.name=grpo"], []),
        (
            ["trainer.critic=model", "trainer.critic_warmup_updates=3"],
            ["trainer.critic", "trainer.critic_warmup_updates"],
        ),
        (["trainer.critic=model", "algorithm.name=ppo"], []),
        (
            ["trainer.critic=model", "trainer.critic_detached=true", "algorithm.name=ppo"],
            ["trainer.critic_detached"],
        ),
        (["trainer.critic_detached=true", "algorithm.name=ppo"], []),
        (["data.seed=4"], []),
        (["data.seed=4", "data.task=", 'data.files=["a.jsonl"]', 'data.held_out=["b.jsonl"]'], ["data.seed"]),
        (["data.schema=trl"], ["data.schema"]),
        (["data.held_out=0", "evaluation.every=5"], ["evaluation.every"]),
    ],
)
def test_settings_that_nothing_reads_are_reported(recipe: Path, overrides: list[str], paths: list[str]):
    run = resolve(recipe, overrides)
    assert [sentence.split(" is not used: ")[0] for sentence in unused(run)] == paths
    assert opening_lines(run)[-len(paths) :] == unused(run) or not paths


def test_a_run_cannot_be_changed(recipe: Path):
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve(recipe).run = RunSection()  # pyright: ignore[reportAttributeAccessIssue] the point of the test


def test_every_section_is_a_frozen_dataclass_but_the_algorithm():
    kinds = fields_of(Run)
    assert list(kinds) == [
        "run", "model", "data", "reward", "algorithm", "sampling", "trainer", "evaluation", "record",
        "doctor", "cluster",
    ]  # fmt: skip
    frozen = [name for name, kind in kinds.items() if fields_of(kind) and kind.__dataclass_params__.frozen]
    assert set(kinds) - set(frozen) == {"algorithm"}


def test_evaluation_defaults_are_possible():
    assert EvaluationConfig().ks == (1, 8)
