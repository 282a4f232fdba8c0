"""It learns: a random model that seldom begins with a digit does so almost always after 24 small steps."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_runs import tiny_run, train_silently
from trimtab.algorithms import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_a_rule_from_its_reward_alone(name: str, model: Path, tmp_path: Path):
    run = tiny_run(
        model,
        {"name": name},
        run={"steps": 24},
        data={"held_out": 64, "train_prompts": 200},
        sampling={"prompts_per_step": 8, "samples_per_prompt": 8, "max_new_tokens": 3},
        trainer={"learning_rate": 4e-3, "critic_learning_rate": 1e-2, "critic_warmup_updates": 4},
        evaluation={"samples": 4, "ks": [1]},
        record={"checkpoint_every": 100, "rollouts": 0, "tokens": 0},
    )
    summary, view = train_silently(run, tmp_path / "run")
    start, final = summary["evaluation"]["start"], summary["evaluation"]["final"]
    assert start["pass@1"] < 0.4
    assert final["pass@1"] > 0.8
    assert final["against_start"]["verdict"] == "better"
    early, late = (
        sum(values["reward/outcome"] for values in view.steps[part]) for part in (slice(3), slice(-3, None))
    )
    assert late > early + 3 * 0.4, "training rewards rise with it"
