"""A sharded trainer on a GPU: one rank, NCCL beside gloo, models loaded on the CPU."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rank_process import finished
from tests.sharded_cases import CASES, Case, apart, trained
from tests.tiny import tiny_model
from tests.trainers import annotate, same, update, weights
from trimtab.models import LoadedModel
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.sharded import ShardedTrainer
from trimtab.trainer.sharded_group import Group, join, open_store

pytestmark = pytest.mark.gpu


@pytest.fixture
def group() -> Iterator[Group]:
    made = join(0, 1, open_store(timeout=60.0), timeout=60.0, device="cuda")
    yield made
    made.close()


def on_gpu(model: LoadedModel) -> LoadedModel:
    return dataclasses.replace(model, module=copy.deepcopy(model.module).to("cuda"))


@pytest.mark.parametrize("name", ["policy", "critic model", "reference and entropy", "layers computed again"])
def test_ten_updates_on_a_gpu_are_those_of_the_trainer_of_one_process(group: Group, name: str):
    def local(model: LoadedModel, **settings: object) -> LocalTrainer:
        reference = settings.pop("reference", None)
        return LocalTrainer(on_gpu(model), reference=reference and on_gpu(reference), **settings)  # type: ignore[arg-type]  # of any case

    case = CASES[name]
    left = trained(case, case.built(local))
    right = trained(
        case, case.built(lambda model, **settings: ShardedTrainer(model, group=group, **settings))
    )
    assert apart(left, right) <= 1e-5


def test_state_and_weights_come_back_from_a_gpu(group: Group, tmp_path: Path):
    case = Case()
    first, second = (
        case.built(lambda model, **settings: ShardedTrainer(model, group=group, **settings)) for _ in range(2)
    )
    batch = annotate(first, case.batch())
    assert update(first, batch).applied
    finished(first.save(tmp_path))
    asyncio.run(second.load(tmp_path))
    assert next(iter(weights(second).values())).device.type == "cuda"
    assert same(weights(first), weights(second))
    assert not same(weights(second), dict(on_gpu(tiny_model()).module.named_parameters()))
