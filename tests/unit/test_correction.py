"""Rollout correction in a recipe: its default, what is refused, where it is told, what it measures."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.algorithms import build_algorithm, spelled_out
from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.table import row_of
from trimtab.config import Run, opening_lines, run_from_dict
from trimtab.errors import SettingError
from trimtab.loop import stages
from trimtab.metrics import read
from trimtab.objectives.correction import Correction
from trimtab.probes.correction import correction_metrics
from trimtab.types import Batch


def built(**table: Any) -> Algorithm:
    return build_algorithm({"name": "grpo", **table}, max_new_tokens=64, samples_per_prompt=4)


def run_of(**sections: Any) -> Run:
    tree = {"model": {"path": "embedded/sums"}, "data": {"task": "sums"}, "algorithm": {"name": "dapo"}}
    return run_from_dict({**tree, **sections})


# ------------------------------------------------------------------------------ the slot


def test_a_recipe_names_changes_and_leaves_it_out():
    assert built().correction is None
    assert built(correction={}).correction == Correction()
    assert built(correction="rollout").correction == Correction()
    mask = built(correction={"level": "sequence", "form": "mask", "low": 0.5, "high": 3}).correction
    assert mask == Correction(level="sequence", form="mask", low=0.5, high=3.0)
    assert built(correction="none").correction is None


def test_the_runs_own_correction_counts_only_where_the_table_is_silent():
    def with_usual(**table: Any) -> Correction | None:
        usual = Correction(high=5.0)
        given = {"name": "grpo", **table}
        return build_algorithm(given, max_new_tokens=64, samples_per_prompt=4, correction=usual).correction

    assert with_usual() == Correction(high=5.0)
    assert with_usual(correction="none") is None
    assert with_usual(correction={"form": "mask"}) == Correction(form="mask")


def test_what_is_spelled_out_builds_it_again_and_the_table_shows_it():
    algorithm = built(correction={"level": "sequence", "form": "mask", "high": 3.0})
    again = build_algorithm(spelled_out(algorithm), max_new_tokens=64, samples_per_prompt=4)
    assert again.correction == algorithm.correction
    assert "rollout correction: sequence weights masked outside [0, 3]" in row_of(algorithm).also


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"high": 0.5}, "needs 0 <= low <= 1 <= high"),
        ({"low": 1.5, "high": 2.0}, "needs 0 <= low <= 1 <= high"),
        ({"low": -0.1}, "needs 0 <= low <= 1 <= high"),
        ({"high": float("inf")}, "without an upper bound"),
        ({"low": 1.0, "high": 1.0}, "low < high"),
        ({"level": "tokn"}, "level must be one of token, sequence"),
        ({"form": "clip"}, "form must be one of truncate, mask"),
        ({"bound": 2.0}, "unknown key algorithm.correction.bound"),
        ({"high": "2"}, "algorithm.correction.high must be a number"),
    ],
)
def test_nonsense_is_refused(table: dict[str, Any], said: str):
    with pytest.raises(SettingError, match=said):
        built(correction=table)


def test_words_that_are_none_are_refused_in_python_too():
    with pytest.raises(SettingError, match="did you mean 'mask'"):
        Correction(form="maks")  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------ the default


@pytest.mark.parametrize(
    ("cluster", "trainer", "dtype", "on"),
    [
        ({}, {}, "auto", False),
        ({"engines": 2}, {}, "bfloat16", False),
        ({"engines": 1, "staleness": 1}, {}, "float32", True),
        ({"engines": 1, "staleness": 2}, {"old_logprobs": "recompute"}, "float32", True),
        ({"engines": 1, "staleness": 1}, {"old_logprobs": "sampler"}, "float32", False),
        ({"engines": 1, "engine": "vllm"}, {}, "auto", True),
        ({"engines": 1, "engine": "vllm"}, {}, "float32", False),
        ({"engines": 1, "engine": "vllm", "vllm": {"dtype": "bfloat16"}}, {}, "float32", True),
        ({"engines": 1, "engine": "vllm", "vllm": {"dtype": "float32"}}, {}, "bfloat16", False),
    ],
)
def test_it_is_on_where_answers_may_be_stale_or_the_sampler_rounds(
    cluster: dict[str, Any], trainer: dict[str, Any], dtype: str, on: bool
):
    run = run_of(cluster=cluster, trainer=trainer, model={"path": "embedded/sums", "dtype": dtype})
    assert run.build_algorithm().correction == (Correction() if on else None)
    assert any("Rollout correction" in line for line in opening_lines(run)) == on
    local = cluster.get("engine", "local") == "local" and not cluster.get("staleness")
    assert run.exact_sampler == local


def test_a_correction_that_could_do_nothing_is_refused():
    table = {"name": "dapo", "correction": {"form": "mask"}}
    with pytest.raises(SettingError, match="every factor of algorithm.correction is 1"):
        run_of(algorithm=table, trainer={"old_logprobs": "sampler"})
    assert not run_of(algorithm=table).exact_sampler, "the trainer computes the old ones itself"


# ------------------------------------------------------------------------------ the column and its metrics


def corrected(correction: Correction, log_ratios: list[float]) -> Batch:
    """One answer of these log-ratios old - rollout, and one of a single token with log-ratio 0."""
    batch = ragged_batch(50, answers=((len(log_ratios),), (1,)), prompts=(2, 2))
    moved_T = torch.tensor([*log_ratios, 0.0])
    batch = batch.with_columns(old_logprobs_T=batch.rollout_logprobs_T + moved_T)
    return batch.with_columns(**correction(batch))


def values(batch: Batch) -> dict[str, float]:
    return read(correction_metrics(batch)).values


def test_the_metrics_of_a_hand_made_update():
    log2, log4 = 0.6931471805599453, 1.3862943611198906
    seen = values(corrected(Correction(high=2.0, low=0.5), [log4, -log4, log2 / 2]))
    factors = [2.0, 0.5, 2.0**0.5, 1.0]
    assert seen["correction/factor"] == pytest.approx(sum(factors) / 4, rel=1e-6)
    assert seen["correction/factor_max"] == pytest.approx(2.0)
    assert (seen["correction/high"], seen["correction/low"]) == (0.25, 0.25)
    assert seen["correction/ess"] == pytest.approx(sum(factors) ** 2 / (4 * sum(f * f for f in factors)))
    k3 = (4 - 1 - log4) + (0.25 - 1 + log4) + (2**0.5 - 1 - log2 / 2)
    assert seen["correction/k3"] == pytest.approx(k3 / 4, rel=1e-5)
    assert seen["correction/clamped"] == 0.0
    masked = values(corrected(Correction(form="mask", high=2.0, low=0.5), [log4, -log4, log2 / 2]))
    assert masked["correction/factor"] == pytest.approx((2.0**0.5 + 1.0) / 4, rel=1e-6)


def test_what_overflows_is_clamped_before_exp_and_counted():
    batch = corrected(Correction(form="mask"), [700.0, 0.0])
    assert batch.columns["correction_T"].tolist() == [0.0, 1.0, 1.0]
    assert values(batch)["correction/clamped"] == 1.0
    summed = corrected(Correction(level="sequence"), [15.0, 15.0])
    assert summed.columns["correction_T"].tolist() == [2.0, 2.0, 1.0]
    assert values(summed)["correction/clamped"] == 2.0


def test_without_a_correction_there_is_no_metric():
    assert correction_metrics(with_advantages(ragged_batch(50))) == {}


# ------------------------------------------------------------------------------ the stages


class Asked:
    """A trainer that only remembers which columns it was asked for."""

    version, old_from_update = 0, True

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        self.columns = columns
        return batch


@pytest.mark.parametrize("on", [True, False])
def test_the_pass_before_the_only_update_is_not_left_out(on: bool):
    """The factor needs the old log-probabilities before the update that would make them by itself."""
    trainer: Any = Asked()
    algorithm = built(kl_coef=0.0, correction={} if on else "none")
    asyncio.run(stages.annotate(trainer, ragged_batch(50), algorithm, only_update=True))
    assert ("old_logprobs_T" in trainer.columns) == on


def test_the_factor_survives_the_cut_into_updates_and_leaves_the_weights_alone():
    batch = with_advantages(ragged_batch(50))
    batch = batch.with_columns(old_logprobs_T=batch.rollout_logprobs_T + 0.1)
    made = stages.correct(batch, built(correction={"form": "mask", "high": 1.05}))
    assert bool((made.columns["correction_T"] == 0.0).all()), "exp(0.1) lies above 1.05: all are masked"
    part = POLICY.weighted(made.select([4, 1]))
    assert part.columns["correction_T"].shape[0] == part.num_tokens
    assert float(part.weights_T.sum()) == pytest.approx(1.0), "masked tokens still count in the denominator"
    assert stages.correct(batch, built(correction="none")) is batch
