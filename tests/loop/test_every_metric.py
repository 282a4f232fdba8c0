"""Every key of the catalogue comes out of some run of what exists, and no run emits any other."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.asynchronous import Plant
from tests.loop.test_routing import tiny_experts
from tests.tiny_runs import tiny_run, train_silently
from trimtab.catalog import CATALOG, DISTRIBUTIONS, find, imported
from trimtab.loop import asynchronous
from trimtab.models import export_model
from trimtab.record.reader import RunReader

GRADER = """
def fails_at_times(prompt, rollout):
    if rollout.index == 3:
        raise ValueError("the last one")
    return [0.0, 0.5, 1.0][rollout.length % 3]
"""
NEEDS_A_DEVICE = set() if torch.cuda.is_available() else {"memory/device_peak_bytes"}
FROM_OTHER_TRAINERS = {spec.key for section in imported.SECTIONS for spec in section.specs}


@pytest.fixture(scope="module")
def runs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, RunReader]:
    """PPO with critic and KL, GRPO with a reference, DAPO with shaping, GSPO on experts, SAPO, votes, and an
    asynchronous run.
    """
    folder = tmp_path_factory.mktemp("runs")
    (folder / "graders.py").write_text(GRADER)
    experts = tiny_experts()
    export_model(experts.module, experts.tokenizer, folder / "experts")
    partial: dict[str, Any] = {"graders": [{"name": f"{folder / 'graders.py'}:fails_at_times"}]}
    answers: dict[str, Any] = {"graders": [{"name": "answer"}]}
    short: dict[str, Any] = {"steps": 2}
    made = {
        "ppo": tiny_run(model, "ppo", run=short),
        "grpo": tiny_run(model, "grpo", run=short, trainer={"epochs": 2, "learning_rate": 5e-2}),
        "dapo": tiny_run(
            model,
            {"name": "dapo", "overlong_buffer": 4},
            reward={**partial, "truncated": "grade"},
            data={"held_out": 0},
        ),
        "gspo": tiny_run(folder / "experts", "gspo", run=short, data={"held_out": 0}),
        "sapo": tiny_run(model, "sapo", run=short, data={"held_out": 0}),
        "voted": tiny_run(model, "dr_grpo", run={"steps": 1}, reward=answers),
    }
    for name, run in made.items():
        train_silently(run, folder / name)
    beside = tiny_run(model, "cispo", run=short, data={"held_out": 0}, cluster={"engines": 1, "staleness": 1})
    Plant(beside, folder / "beside").go(asynchronous.train)
    return {name: RunReader(folder / name) for name in (*made, "beside")}


def emitted(reader: RunReader) -> set[str]:
    return {find(key).key for key in (*reader.history.keys, *reader.evaluations.keys)}


def test_every_key_is_emitted_by_some_run(runs: Mapping[str, RunReader]):
    found = set[str]().union(*(emitted(reader) for reader in runs.values()))
    assert set(CATALOG) - found == NEEDS_A_DEVICE | FROM_OTHER_TRAINERS


def test_every_distribution_is_recorded_by_some_run_and_no_other_by_any(runs: Mapping[str, RunReader]):
    found = {
        key
        for reader in runs.values()
        for step in reader.distribution_steps()
        for key in reader.distributions(step)
    }
    assert found == set(DISTRIBUTIONS)


def test_what_a_run_cannot_have_is_absent(runs: Mapping[str, RunReader]):
    """No critic, no reference model, no experts, no length penalty: no key, and not a zero."""
    of = {name: emitted(reader) for name, reader in runs.items()}
    for name, prefix, having in (
        ("value/", "value/", {"ppo"}),
        ("kl/reference", "kl/reference", {"ppo", "grpo"}),
        ("routing/", "routing/", {"gspo"}),
        ("shaping", "reward/shaping", {"dapo"}),
        ("correction", "correction/", {"beside"}),
        ("async", "async/", {"beside"}),
    ):
        assert {run for run, keys in of.items() if any(key.startswith(prefix) for key in keys)} == having, (
            name
        )


def test_the_gate_of_sapo_is_soft_and_effective_mass_compares_algorithms(runs: Mapping[str, RunReader]):
    soft = runs["sapo"].history.series("gate/effective_mass").values
    assert ((soft > 0.0) & (soft <= 1.0)).all()
    assert runs["sapo"].history.series("clip/removed").values.max() == 0.0
    hard = runs["grpo"].history
    assert hard.series("clip/removed").values.max() > 0.0, "raise the learning rate: nothing was clipped"
    assert hard.series("gate/effective_mass").values.min() < 1.0


def test_the_gap_between_training_and_held_out_prompts(runs: Mapping[str, RunReader]):
    """Right answers of both steps over graded ones, less the final pass@1."""
    reader = runs["grpo"]
    right = graded = 0.0
    for step in (0, 1):
        rollouts = reader.history.value(step, "flow/rollouts") or 0.0
        rate = reader.history.value(step, "pass/at_1") or 0.0
        right, graded = right + rate * rollouts, graded + rollouts
    final = reader.evaluations.series("evaluation/pass@1").values[-1]
    gap = reader.evaluations.series("evaluation/train_gap").values
    assert len(gap) == 1, "the start has trained nothing"
    assert gap[0] == pytest.approx(right / graded - final, abs=1e-9)
