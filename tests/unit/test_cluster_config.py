"""The ``[cluster]`` table: what contradicts itself, what nothing reads, and what a resumed run may change."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.tiny_runs import model_folder, tiny_run, train_silently
from trimtab.cli.train import MAY_CHANGE
from trimtab.config import opening_lines
from trimtab.config.arguments import reference_path, trainer_arguments, trainer_dtype, vllm_length
from trimtab.config.cluster import ClusterConfig, VllmConfig
from trimtab.distributed.deals import Deals
from trimtab.distributed.specs import LocalSpec, VllmSpec
from trimtab.errors import DataError, RunError, SettingError
from trimtab.launch.prompts import prompts_of
from trimtab.models import load_model
from trimtab.rewards.build import build_rubric
from trimtab.types import Draw, Prompt

MODEL = Path("nowhere")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"engines": -1}, "cluster.engines must be >= 0"),
        ({"restarts": -1}, "cluster.restarts must be >= 0"),
        ({"patience": 0.0}, "cluster.patience must be > 0"),
        ({"patience": 60.0, "give_up": 60.0}, "cluster.give_up = 60 seconds must be more than"),
        ({"staleness": 1}, "cluster.engines is 0"),
        ({"engines": 1, "in_flight": "update"}, "cluster.staleness is 0"),
        ({"engines": 1, "transfer": "nccl"}, "weights do not go from ranks to engines"),
        ({"address": "head:6379"}, "no process is asked of that cluster"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(settings, says):
    with pytest.raises(SettingError, match=says):
        ClusterConfig(**settings)


def test_waiting_for_ever_is_allowed():
    assert ClusterConfig(engines=1, patience=60.0, give_up=0.0).give_up == 0.0


def test_settings_that_nothing_reads_are_told():
    idle = tiny_run(MODEL, cluster={"patience": 5.0, "vllm": {"max_sequences": 8}})
    lines = "\n".join(opening_lines(idle))
    assert "cluster.patience is not used: there is no worker" in lines
    assert "cluster.vllm.max_sequences is not used: cluster.engine is local" in lines
    used = "\n".join(opening_lines(tiny_run(MODEL, cluster={"engines": 2, "patience": 5.0})))
    assert "cluster." not in used


@pytest.mark.parametrize(
    ("cluster", "selection", "least"),
    [
        ({}, {}, None),
        ({}, {"max_staleness": 0}, 1),
        ({"engines": 1, "staleness": 1}, {}, 2),
        ({"engines": 1, "staleness": 1}, {"max_staleness": 0}, 2),
        ({"engines": 1, "staleness": 1}, {"max_staleness": 2}, None),
        ({"engines": 1, "staleness": 1}, {"carry": False}, None),
        ({"engines": 1, "staleness": 1, "in_flight": "update"}, {}, None),
        ({"engines": 1, "staleness": 2}, {}, None),
    ],
)
def test_surplus_groups_that_would_always_be_too_old_are_told(cluster, selection, least):
    """Whether they are is what tests/loop/test_asynchronous.py sees in runs."""
    table = {"name": "dapo", "overlong_buffer": 4, "selection": selection}
    told = [line for line in opening_lines(tiny_run(MODEL, table, cluster=cluster)) if "Surplus" in line]
    assert len(told) == (least is not None)
    assert least is None or f"set it to {least} to train on them" in told[0]


@pytest.mark.parametrize(
    ("room", "longest", "evaluated", "length"),
    [(0, None, None, None), (0, 30, None, 42), (0, 30, 20, 50), (60, None, None, 60), (60, 30, 30, 60)],
)
def test_how_long_a_vllm_engine_is_comes_from_the_run_unless_set(room, longest, evaluated, length):
    run = tiny_run(
        MODEL,
        data={"max_prompt_tokens": longest},
        evaluation={"max_new_tokens": evaluated},
        cluster={"engines": 1, "engine": "vllm", "vllm": {"max_model_len": room}},
    )
    assert vllm_length(run) == length


@pytest.mark.parametrize(("longest", "needed"), [(None, 13), (30, 42)])
def test_a_vllm_engine_too_short_for_its_prompts_and_answers_is_refused(longest, needed):
    def run(room: int):
        vllm = {"engines": 1, "engine": "vllm", "vllm": {"max_model_len": room}}
        return tiny_run(MODEL, data={"max_prompt_tokens": longest}, cluster=vllm)

    with pytest.raises(SettingError, match=f"cluster.vllm.max_model_len = {needed - 1} .*set it to {needed}"):
        run(needed - 1)
    assert vllm_length(run(needed)) == needed


def test_a_prompt_for_which_a_vllm_engine_has_no_room_is_refused_before_it_samples(tmp_path):
    folder = model_folder(tmp_path / "model")
    vllm = {"engines": 1, "engine": "vllm", "vllm": {"max_model_len": 14}}
    run, model = tiny_run(folder, cluster=vllm), load_model(str(folder))
    with pytest.raises(DataError, match=r"cluster.vllm.max_model_len = 14 leaves 2 beside answers of 12"):
        prompts_of(run, model, build_rubric(run.reward))
    roomy = dataclasses.replace(run, cluster=ClusterConfig(**{**vllm, "vllm": VllmConfig(max_model_len=64)}))
    assert prompts_of(roomy, model, build_rubric(run.reward))[0].train


@pytest.mark.parametrize(
    ("trainer", "dtype", "computes"),
    [
        ({}, "float32", torch.float32),
        ({}, "bfloat16", torch.bfloat16),
        ({"autocast": True}, "float32", torch.bfloat16),
    ],
)
def test_what_a_trainer_computes_in(trainer, dtype, computes):
    run = tiny_run(MODEL, trainer=trainer)
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, dtype=dtype))
    assert trainer_dtype(run) is computes


def test_a_resumed_run_may_have_other_workers_but_no_other_staleness():
    assert "cluster.engines".startswith(MAY_CHANGE)
    assert "cluster.trainers".startswith(MAY_CHANGE)
    assert "cluster.vllm.max_model_len".startswith(MAY_CHANGE)
    assert not "cluster.vllm.dtype".startswith(MAY_CHANGE)
    assert not "cluster.staleness".startswith(MAY_CHANGE)
    assert not "cluster.engine".startswith(MAY_CHANGE)


def test_a_trainer_is_built_of_the_same_arguments_wherever_it_is():
    run = tiny_run(MODEL, {"name": "ppo"}, cluster={"trainers": 2})
    alone = tiny_run(MODEL, {"name": "ppo"})
    assert trainer_arguments(run) == trainer_arguments(alone)
    assert trainer_arguments(run)["critic"] is True
    needs = alone.build_algorithm().needs
    assert reference_path(alone) == (str(MODEL) if "ref_logprobs_T" in needs else None)


def draws(count: int) -> list[Draw]:
    prompt = {"token_ids": [1], "text": "x", "task": "t"}
    return [Draw(Prompt(id=f"p{i}", answer="secret", **prompt), 0) for i in range(count)]  # type: ignore[arg-type]


def test_deals_are_cut_by_counts_and_dealt_again_as_a_whole():
    deals = Deals(draws(7), 3)
    first = deals.take()
    assert [draw.prompt.id for draw in first.draws] == ["p0", "p1", "p2"]
    assert first.bare()[0].prompt.answer is None
    assert deals.arrived(first, "p1#0") is deals.draws["p1#0"]
    assert deals.back(first) == 2, "one of three was there already"
    again = deals.take()
    assert again is first
    assert deals.arrived(again, "p1#0") is None, "it counts once"
    assert deals.arrived(again, "p0#0") is not None
    assert deals.arrived(again, "p2#0") is not None
    assert (deals.left, deals.back(again), len(deals.waiting)) == (4, 0, 2)


def test_how_draws_are_cut_depends_on_counts_alone():
    run = tiny_run(MODEL, cluster={"engines": 2, "vllm": {"max_sequences": 64}})
    local, vllm = LocalSpec(run, "cpu"), VllmSpec(run)
    assert [local.draws_at_once(count, 2) for count in (1, 4, 32, 33)] == [1, 1, 8, 9]
    assert local.deals_at_once(32, 8, 2) == 1
    assert vllm.draws_at_once(32, 2) == 1
    assert vllm.deals_at_once(32, 4, 2) == 12, "three quarters of its share"
    assert vllm.deals_at_once(64, 16, 2) == 4, "no more than it can hold"


def test_without_ray_a_cluster_is_refused_with_the_remedy(monkeypatch, tmp_path):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "ray" else found(name, *more)
    )
    run = tiny_run(model_folder(tmp_path / "model"), cluster={"engines": 1})
    with pytest.raises((SettingError, RunError), match=r"trimtab\[ray\]"):
        train_silently(run, tmp_path / "run")
