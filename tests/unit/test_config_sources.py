"""Layers of settings: recipes, overrides, who set what, and what was lost on the way."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.config.sources import UNSET, Layers, parse_override, read_recipe, recipe_names
from trimtab.errors import SettingError


def layers(*tables: dict, overrides: tuple[str, ...] = ()) -> Layers:
    laid = Layers()
    for number, table in enumerate(tables):
        laid.lay(f"file{number}", table)
    laid.apply([parse_override(token) for token in overrides])
    return laid


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-4", 1e-4),
        ("true", True),
        ("[1, 8]", [1, 8]),
        ('{a = 1, b = "x"}', {"a": 1, "b": "x"}),
        ('"3"', "3"),
        ("dapo", "dapo"),
        ("path/to/model", "path/to/model"),
        ("a=b", "a=b"),
        ("007", "007"),
        ("inf", float("inf")),
        ("1\nx = 2", "1\nx = 2"),
        ("", UNSET),
    ],
)
def test_the_value_of_an_override_is_toml_or_else_the_text_itself(text: str, value: object):
    setting = parse_override(f"trainer.lr={text}")
    assert setting.path == ("trainer", "lr")
    assert setting.value == value
    assert type(setting.value) is type(value)


@pytest.mark.parametrize("token", ["lr=3", "trainer.lr", "=3", ".lr=3", "trainer..lr=3", "9a.b=1"])
def test_an_override_without_its_form_says_the_form(token: str):
    with pytest.raises(SettingError, match=r"table\.key=value"):
        parse_override(token)


def test_tables_merge_and_later_values_count():
    laid = layers(
        {"run": {"steps": 3, "seed": 1}, "trainer": {"lr": 1e-3}},
        {"run": {"steps": 4}},
        overrides=("trainer.lr=1e-4", "run.name=x"),
    )
    assert laid.tree == {"run": {"steps": 4, "seed": 1, "name": "x"}, "trainer": {"lr": 1e-4}}
    assert laid.origins["run.steps"] == "file1"
    assert laid.origins["run.seed"] == "file0"
    assert laid.origins["run.name"] == "the command line"


def test_what_has_no_effect_is_told_with_both_origins():
    laid = layers({"run": {"steps": 3}}, {"run": {"steps": 4}}, overrides=("run.steps=5",))
    assert [str(lost) for lost in laid.shadowed] == [
        "run.steps = 3 of file0 has no effect: file1 replaces it",
        "run.steps = 4 of file1 has no effect: the command line replaces it",
    ]


def test_the_same_value_twice_is_no_loss():
    assert layers({"run": {"steps": 3}}, {"run": {"steps": 3}}, overrides=("run.steps=3",)).shadowed == []


def test_lists_are_replaced_as_a_whole_and_reached_by_index():
    first = {"reward": {"graders": [{"name": "answer"}, {"name": "format"}]}}
    laid = layers(first, overrides=("reward.graders.1.weight=2", "reward.graders.2.name=other"))
    assert laid.tree["reward"]["graders"] == [
        {"name": "answer"},
        {"name": "format", "weight": 2},
        {"name": "other"},
    ]
    assert first == {"reward": {"graders": [{"name": "answer"}, {"name": "format"}]}}, (
        "the source is untouched"
    )
    replaced = layers(first, {"reward": {"graders": [{"name": "format"}]}})
    assert replaced.tree["reward"]["graders"] == [{"name": "format"}]
    assert [lost.path for lost in replaced.shadowed] == ["reward.graders"]


def test_items_of_a_plain_list_can_be_set_added_and_taken_out():
    laid = layers({"evaluation": {"ks": [1, 2]}}, overrides=("evaluation.ks.1=4", "evaluation.ks.2=8"))
    assert laid.tree["evaluation"]["ks"] == [1, 4, 8]
    assert layers({"evaluation": {"ks": [1, 2]}}, overrides=("evaluation.ks.1=",)).tree["evaluation"][
        "ks"
    ] == [1]


@pytest.mark.parametrize("index", ["3", "-1", "x"])
def test_an_index_outside_a_list_says_the_range(index: str):
    with pytest.raises(SettingError, match=r"reward\.graders is a list of 2.*from 0 to 2"):
        layers({"reward": {"graders": [{}, {}]}}, overrides=(f"reward.graders.{index}.weight=1",))


def test_nothing_lies_below_a_value():
    with pytest.raises(SettingError, match=r"run\.steps is the value 3 and has no settings below it"):
        layers({"run": {"steps": 3}}, overrides=("run.steps.x=1",))


def test_an_empty_value_takes_the_key_out_again():
    laid = layers({"model": {"path": "a", "reference": "b"}}, overrides=("model.reference=",))
    assert laid.tree == {"model": {"path": "a"}}
    assert [str(lost) for lost in laid.shadowed] == [
        'model.reference = "b" of file0 has no effect: the command line replaces it'
    ]
    assert layers({"model": {"path": "a"}}, overrides=("model.reference=",)).tree == {"model": {"path": "a"}}


def test_a_new_algorithm_drops_the_arguments_of_the_old_one_wherever_its_name_stands():
    dapo = {"algorithm": {"name": "dapo", "clip_high": 0.3}}
    laid = layers(dapo, overrides=("algorithm.tau_pos=2", "algorithm.name=sapo"))
    assert laid.tree["algorithm"] == {"name": "sapo", "tau_pos": 2}
    assert [lost.path for lost in laid.shadowed] == ["algorithm.clip_high", "algorithm.name"]
    same = layers(dapo, {"algorithm": {"clip_low": 0.1, "name": "dapo"}})
    assert same.tree["algorithm"] == {"name": "dapo", "clip_high": 0.3, "clip_low": 0.1}
    assert same.shadowed == []


def test_an_empty_table_still_exists():
    assert layers({"algorithm": {"name": "grpo", "selection": {}}}).tree["algorithm"]["selection"] == {}


def test_recipes_are_found_by_path_and_unknown_ones_name_the_known(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("[run]\nsteps = 2\n")
    assert read_recipe(path) == ("mine.toml", {"run": {"steps": 2}})
    with pytest.raises(SettingError, match="there is no recipe 'nothing_like_it'") as caught:
        read_recipe("nothing_like_it")
    assert all(name in str(caught.value) for name in recipe_names())


def test_every_recipe_of_the_package_can_be_read():
    for name in recipe_names():
        assert read_recipe(name)[0] == name


def test_broken_toml_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "broken.toml"
    path.write_text("[run]\nsteps = \n")
    with pytest.raises(SettingError, match=r"broken\.toml is not valid TOML.*line 2"):
        read_recipe(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="no such file|not valid TOML"):
        read_recipe(path)
