"""trimtab reward-model: a Bradley-Terry model from pairs, and its folder as a grader."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
import torch

from tests.classifiers import write_classifier
from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.cli import main
from trimtab.errors import DataError, RunError, SettingError
from trimtab.loop import reward_model as trained
from trimtab.loop.reward_model import make_reward_model
from trimtab.rewards.build import build_grader
from trimtab.rewards.pairs import Pair, append_pair, read_pairs
from trimtab.rewards.rubric import GraderConfig, Rubric
from trimtab.trainer.preference import (
    PreferenceConfig,
    _backward,
    is_held_out,
    load_start,
    rate_at,
    score,
    split,
)

SETTINGS = {"learning_rate": 2e-3, "batch": 24, "micro_batch": 24, "epochs": 1, "held_out": 0.2}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sums of two digits, where the chosen answer is one digit and the other two."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    draw = random.Random(0)
    for number in range(240):
        a, b = number % 10, draw.randrange(10)
        append_pair(
            path,
            Pair(prompt=f"{a}+{b}=", chosen=str(draw.randrange(10)), rejected=str(draw.randrange(10, 99))),
        )
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_classifier(tmp_path_factory.mktemp("rm") / "small"))


def config_of(model: str, **changes) -> PreferenceConfig:
    return PreferenceConfig(model=model, **{**SETTINGS, **changes})


def test_the_command_trains_and_its_folder_is_a_grader(file, tmp_path, capsys):
    folder = tmp_path / "liked"
    words = [f"preference.{key}={value}" for key, value in SETTINGS.items()]
    assert main(["reward-model", str(file), "--model", "embedded/sums", "--to", str(folder), *words]) == 0
    out = capsys.readouterr().out
    assert "the longer answer was chosen in 0.0% of the pairs" in out
    card = json.loads((folder / "reward_model.json").read_text())
    report = card["report"]
    assert f"held out: accuracy {report['accuracy']:.3f} [" in out
    assert "length alone would reach 100.0%" in out
    assert report["accuracy"] > 0.9
    assert report["interval"][0] > card["before"]["accuracy"]
    assert sum(one["pairs"] for one in report["reliability"]) == card["facts"]["held_out"] == report["pairs"]
    assert report["log_loss"] < card["before"]["log_loss"]
    grader = build_grader(GraderConfig(name="reward-model", options={"path": str(folder)}))
    texts = ["7", "3", "17", "42"]
    rollouts = [rollout_of(text, index=i) for i, text in enumerate(texts)]
    values = asyncio.run(Rubric([(grader, 1.0)]).grade(group_of(rollouts, prompt_of(text="3+4=")))).values
    assert values[:2].min() > values[2:].max()
    assert values[:2].min() > 0.5 > values[2:].max(), "the card's centre is the middle"
    assert main(["reward-model", str(file), "--model", "embedded/sums", "--to", str(folder)]) == 2
    assert "is already there" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_model_and_a_reward_model_can_be_trained_on(file, small, tmp_path):
    one, two, other = (
        make_reward_model(file, config_of(small, seed=seed), tmp_path / name)
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one.losses == two.losses
    assert one.report == two.report
    assert one.losses != other.losses
    assert one.losses[-1] < one.losses[0]


def test_micro_batches_change_no_gradient(file, small):
    gradients = []
    for micro_batch in (1, 5, 24):
        config = config_of(small, micro_batch=micro_batch)
        model = load_start(config)
        pairs = split(read_pairs(file).pairs, model, config).train[:24]
        loss, _ = _backward(model, pairs, config)
        chosen, rejected = score(model, pairs, 7).T
        by_hand = torch.nn.functional.softplus(rejected - chosen) + 0.01 * (chosen + rejected) ** 2
        assert loss == pytest.approx(float(by_hand.mean()), rel=1e-4)
        gradients.append(
            torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None])
        )
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-5, rtol=1e-3)


def test_no_prompt_is_on_both_sides_and_none_moves_when_the_file_grows(file, small):
    config = config_of(small)
    pairs = read_pairs(file).pairs
    sides = split(pairs, load_start(config), config)
    train, held_out = ({c.pair.prompt for c in side} for side in (sides.train, sides.held_out))
    assert not train & held_out
    assert 0.1 < len(sides.held_out) / len(pairs) < 0.35
    assert {pair.prompt for pair in pairs[:50] if is_held_out(pair, 0.2)} <= held_out


def test_what_cannot_be_used_is_left_out_and_counted(small, tmp_path, file):
    pairs = [
        *read_pairs(file).pairs,
        Pair(prompt="1+1=", chosen="2" * 300, rejected="3"),
        Pair(prompt="1+1=", chosen="<think>a</think>2", rejected="<think>b</think>2"),
    ]
    config = config_of(small)
    sides = split(pairs, load_start(config), config)
    assert (sides.too_long, sides.equal) == (1, 1)
    with pytest.raises(DataError, match="none is left held out"):
        split(pairs[:1] * 3, load_start(config), config_of(small, held_out=1e-9))
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(DataError, match="no pair of different answers"):
        make_reward_model(empty, config, tmp_path / "x")


def test_a_loss_that_is_not_finite_stops_and_leaves_no_folder(file, small, tmp_path):
    with pytest.raises(RunError, match="lower learning_rate"):
        make_reward_model(file, config_of(small, learning_rate=1e30), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_scores_that_are_not_finite_after_the_last_update_leave_no_folder(file, small, tmp_path, monkeypatch):
    spoilt = trained.train

    def train(model, *rest):
        losses = spoilt(model, *rest)
        with torch.no_grad():
            next(model.module.parameters()).fill_(torch.nan)
        return losses

    monkeypatch.setattr(trained, "train", train)
    with pytest.raises(RunError, match="trained model scores held-out answers with numbers that are not"):
        make_reward_model(file, config_of(small, batch=10_000), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_of_before_the_training(file, small, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="cannot be written: Not a directory"):
        make_reward_model(
            file, config_of(small), tmp_path / "file" / "x", progress=lambda _: pytest.fail("trained")
        )


def test_the_rate_rises_and_falls():
    rates = [rate_at(n, 10, 0.2) for n in range(1, 11)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert 0.0 < rates[-1] < 0.1
    assert rate_at(1, 1, 0.0) == 1.0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"held_out": 1.0}, "held_out"),
        ({"warmup": 1.0}, "warmup"),
        ({"form": "chatt"}, "did you mean 'chat'"),
    ],
)
def test_impossible_settings_are_refused(changes, word):
    with pytest.raises(SettingError, match=word):
        config_of("x", **changes)


def test_settings_of_the_command_are_checked_like_a_recipe(tmp_path, capsys):
    for word, sentence in (
        ("preference.epoch=3", "did you mean preference.epochs?"),
        ("preference.model=x", "given by --model"),
        ("trainer.epochs=3", "unknown table trainer"),
    ):
        assert main(["reward-model", "p.jsonl", "--model", "x", "--to", str(tmp_path / "y"), word]) == 2
        assert sentence in capsys.readouterr().err
