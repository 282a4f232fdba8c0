"""Real NaN and infinities: the run stops, names them, keeps the update, and replay finds where they begin."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny_runs import model_folder, tiny_run, train_silently
from trimtab.cli import main
from trimtab.cli.replay import replayed, verdict
from trimtab.config import Run
from trimtab.errors import RunError
from trimtab.record.events import Event
from trimtab.record.reader import RunReader
from trimtab.rewards.shaping import SoftOverlong
from trimtab.trainer.checkpoint import latest_checkpoint
from trimtab.trainer.faults import NotFiniteError
from trimtab.trainer.kept import kept_updates, read_kept, read_policy
from trimtab.trainer.local import LocalTrainer

QUICK = {"data": {"held_out": 0}, "evaluation": {"every": 0}}
WEIGHT = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def stopped(run: Run, folder: Path) -> NotFiniteError:
    with pytest.raises(NotFiniteError) as caught:
        train_silently(run, folder)
    [event] = [e for e in RunReader(folder).events if e["event"] == Event.NOT_FINITE]
    assert event["update"] == caught.value.update
    assert event["rollouts"] == list(caught.value.keys)
    assert f"step {caught.value.step}, update {caught.value.update}: " in str(caught.value)
    assert f"trimtab replay {folder}" in str(caught.value)
    return caught.value


def test_a_poisoned_weight(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A weight turns NaN between two updates: the checkpoint is sound, so replay blames the weight."""
    update, calls = LocalTrainer.update, []

    async def updating(self: LocalTrainer, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 4:  # the second of step 1
            dict(self.model.module.named_parameters())[WEIGHT].data[3, 4] = torch.nan
        return await update(self, *args)

    monkeypatch.setattr(LocalTrainer, "update", updating)
    run, folder = tiny_run(model, run={"steps": 3}, **QUICK), tmp_path / "run"
    fault = stopped(run, folder)
    assert (fault.step, fault.update, fault.tensor) == (1, 3, f"the policy's weight {WEIGHT}")
    monkeypatch.undo()

    kept = read_kept(folder / "nonfinite", 3)
    seen = calls[-1][0]
    assert kept.batch.keys_S == seen.keys_S
    assert kept.checkpoint == 1
    for name in ("token_ids_T", "group_S", "rewards_S"):
        assert torch.equal(getattr(kept.batch, name), getattr(seen, name))
    assert kept.batch.columns.keys() == seen.columns.keys()
    assert all(torch.equal(a, b) for a, b in zip(kept.batch.prompts_P, seen.prompts_P, strict=True))
    assert bool(read_policy(folder / "nonfinite", 3)[WEIGHT][3, 4].isnan())

    _, replays = replayed(folder)
    found, saved = replays["the policy as it was found"], replays["checkpoint step-000001"]
    weight, *rollouts = found.places
    assert (weight.stage, weight.where) == ("weights", f"the policy's {WEIGHT} at [3, 4]")
    module = WEIGHT.removesuffix(".weight")
    assert {place.where for place in rollouts} == {f"what comes out of the policy's {module}"}
    assert {place.token for place in rollouts} <= {-n for n in range(1, 20)}, "the prompt meets it first"
    assert saved.finite
    assert saved.loss is not None
    assert "the weights went bad after it" in verdict(kept, found, saved)

    assert main(["replay", str(folder)]) == 0
    told = capsys.readouterr().out
    for part in ("step 1, update 3", WEIGHT, "in the prompt", "checkpoint step-000001", "all finite"):
        assert part in told

    summary, _ = train_silently(run, folder, resume=True)
    assert summary["steps"] == 3, "the last good checkpoint loads and the run goes on"


@dataclasses.dataclass(frozen=True)
class DividesByLength(SoftOverlong):
    """An own shaping with the classic mistake: one over what is left of the length, at the full length."""

    def penalties(self, lengths: Any, max_new_tokens: int) -> Any:
        return 1.0 / (max_new_tokens - np.asarray(lengths, dtype=np.float64))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_an_infinite_reward_of_an_own_algorithm(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    build = Run.build_algorithm
    own = DividesByLength(buffer=4)
    monkeypatch.setattr(Run, "build_algorithm", lambda run: dataclasses.replace(build(run), shaping=own))
    folder = tmp_path / "run"
    fault = stopped(tiny_run(model, run={"steps": 3}, **QUICK), folder)
    assert fault.tensor == "the reward (rewards_S)"
    rows = {row.key: row for row in RunReader(folder).rollouts(fault.step or 0)}
    assert {rows[key].length for key in fault.keys} == {12}, "those and no others have the reward"
    kept, replays = replayed(folder)
    for replay in replays.values():
        assert {(place.stage, place.where, place.value) for place in replay.places} == {
            ("batch", "rewards_S", "inf")
        }
        assert [place.rollout for place in replay.places] == list(fault.keys)
    assert "batch itself" in verdict(kept, *replays.values())
    assert main(["replay", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensor"] == fault.tensor


def test_a_learning_rate_that_overflows(model: Path, tmp_path: Path):
    """Weights are infinite after the very first update: found before anything is sampled from them."""
    run = tiny_run(model, trainer={"learning_rate": 1e39}, **QUICK)
    fault = stopped(run, tmp_path / "run")
    assert (fault.step, fault.update, fault.spoilt) == (0, 0, True)
    assert "after the update" in fault.tensor
    assert "spoilt the weights" in str(fault)
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is None
    kept, replays = replayed(tmp_path / "run")
    begun = replays["the model the run began with"]
    assert {place.stage for place in begun.places} == {"update"}
    assert "learning rate" in verdict(kept, *replays.values())
    rescued = tiny_run(model, trainer={"learning_rate": 1e-3}, **QUICK)
    summary, _ = train_silently(rescued, tmp_path / "run", resume=True)
    assert summary["steps"] == rescued.run.steps


def test_weights_so_large_that_the_next_gradient_overflows(model: Path, tmp_path: Path):
    """A large rate, not an infinite one: loss and weights are finite, the next update's gradient is not."""
    fault = stopped(tiny_run(model, trainer={"learning_rate": 1e25}, **QUICK), tmp_path / "run")
    assert (fault.step, fault.update, fault.spoilt) == (0, 1, False)
    assert fault.tensor.startswith("the gradient of the policy's model.")
    kept, replays = replayed(tmp_path / "run")
    found = replays["the policy as it was found"]
    assert {place.stage for place in found.places} == {"gradient"}
    assert {place.rollout for place in found.places} <= set(fault.keys)
    assert "the weights went bad after it" in verdict(kept, *replays.values())


def test_a_finite_weight_whose_products_overflow_is_found_by_module_and_token(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    update, calls = LocalTrainer.update, []

    async def updating(self: LocalTrainer, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            dict(self.model.module.named_parameters())["model.norm.weight"].data[5] = 3e38
        return await update(self, *args)

    monkeypatch.setattr(LocalTrainer, "update", updating)
    fault = stopped(tiny_run(model, **QUICK), tmp_path / "run")
    assert fault.tensor == "the new log-probability (logprobs_T)"
    monkeypatch.undo()
    _, replays = replayed(tmp_path / "run")
    places = replays["the policy as it was found"].places
    assert {place.rollout for place in places} >= set(fault.keys)
    for place in places:
        assert place.stage == "forward"
        assert place.where.removeprefix("what comes out of the policy's ") in ("model.norm", "lm_head")
    assert replays["the model the run began with"].finite


def test_an_infinite_advantage_is_found_before_any_update(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    build = Run.build_algorithm

    class Spoils:
        def __init__(self, inner: Any) -> None:
            self.inner, self.needs = inner, inner.needs

        def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
            columns = self.inner(batch)
            columns["advantages_T"][batch.seq_T == 2] = torch.inf
            return columns

    def building(run: Run) -> Any:
        algorithm = build(run)
        return dataclasses.replace(algorithm, advantage=Spoils(algorithm.advantage))

    monkeypatch.setattr(Run, "build_algorithm", building)
    fault = stopped(tiny_run(model, **QUICK), tmp_path / "run")
    assert (fault.tensor, len(fault.keys)) == ("the advantage (advantages_T)", 1)
    _, replays = replayed(tmp_path / "run")
    [place] = replays["the model the run began with"].places
    assert (place.where, place.rollout, place.token, place.value) == ("advantages_T", fault.keys[0], 0, "inf")


def test_there_is_nothing_to_replay_in_a_healthy_run(model: Path, tmp_path: Path):
    train_silently(tiny_run(model, run={"steps": 1}, **QUICK), tmp_path / "run")
    assert kept_updates(tmp_path / "run" / "nonfinite") == []
    with pytest.raises(RunError, match="has kept no update"):
        replayed(tmp_path / "run")
