"""State of a sharded trainer: any number of ranks and the single process read what any of them wrote."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.rank_process import finished
from tests.ranks import Spread, spawned
from tests.sharded_cases import CASES, Case
from tests.trainers import annotate, masters, moments, same, update, weights, with_returns
from trimtab.errors import RunError
from trimtab.trainer.checkpoint import find_fault, new_checkpoint
from trimtab.trainer.local import LocalTrainer

CASE = CASES["critic model"]
KINDS = (0, 1, 2, 3)
"""Numbers of ranks; 0 is a LocalTrainer, 1 is one rank in a process of its own."""
WAYS = ((0, 2), (2, 0), (1, 2), (2, 1), (3, 2))


def built(size: int, case: Case = CASE) -> Any:
    if size == 0:
        return case.built(LocalTrainer)
    return case.built(lambda model, **settings: Spread(spawned(size), model, **settings))


def prepared(trainer: Any) -> Any:
    return with_returns(annotate(trainer, CASE.batch(), CASE.columns), 0.5)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The state after four updates, written by each kind."""
    folders: dict[int, Path] = {}
    for size in KINDS:
        trainer = built(size)
        batch = prepared(trainer)
        for _ in range(4):
            assert update(trainer, batch, CASE.objective).applied
        asyncio.run(trainer.publish())
        folders[size] = tmp_path_factory.mktemp(f"ranks{size}")
        asyncio.run(trainer.save(folders[size]))
    return folders


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_any_number_of_ranks_reads_what_any_other_wrote(written: dict[int, Path], source: int, target: int):
    owner, reader = built(source), built(target)
    for trainer in (owner, reader):
        asyncio.run(trainer.load(written[source]))
        assert trainer.version == 1
    left, right = masters(owner), masters(reader)
    assert all(same(left[name], right[name]) for name in ("policy", "critic"))
    assert same(moments(owner), moments(reader))
    batch = prepared(owner)
    reports = [update(trainer, batch, CASE.objective) for trainer in (owner, reader)]
    assert reports[0].learning_rate == reports[1].learning_rate
    assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-4)
    for name, tensor in weights(owner).items():
        torch.testing.assert_close(weights(reader)[name], tensor, rtol=0, atol=1e-6)


def test_each_rank_writes_its_rows_as_safetensors_and_nothing_else(written: dict[int, Path]):
    folder = written[3] / "trainer"
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds == {".safetensors", ".json"}
    assert json.loads((folder / "trainer.json").read_text())["ranks"] == 3
    for name in ("policy", "critic", "optimizer"):
        files = sorted(folder.glob(f"{name}-*-of-00003.safetensors"))
        alone = (written[0] / "trainer" / f"{name}.safetensors").stat().st_size
        assert len(files) == 3
        assert max(file.stat().st_size for file in files) < 0.6 * alone


def test_a_checkpoint_of_ranks_is_listed_whole_in_its_manifest(tmp_path: Path):
    trainer = built(2)
    with new_checkpoint(tmp_path, 3) as side:
        asyncio.run(trainer.save(side))
    path = tmp_path / "step-000003"
    assert find_fault(path) is None
    (path / "trainer" / "policy-00002-of-00002.safetensors").unlink()
    assert find_fault(path) == "trainer/policy-00002-of-00002.safetensors is missing"


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_a_damaged_shard_is_refused_by_all_ranks_alike_and_they_go_on(tmp_path: Path, damage: str):
    trainer = built(2)
    asyncio.run(trainer.save(tmp_path))
    file = tmp_path / "trainer" / "critic-00002-of-00002.safetensors"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(RunError, match=r"critic-00002-of-00002\.safetensors cannot be read"):
        asyncio.run(trainer.load(tmp_path))
    assert update(trainer, prepared(trainer), CASE.objective).applied


def test_a_rank_that_cannot_write_stops_all(tmp_path: Path):
    trainer = built(2)
    (tmp_path / "trainer" / "policy-00002-of-00002.safetensors").mkdir(parents=True)
    with pytest.raises(RunError, match="rank 1 of the trainer failed"):
        asyncio.run(trainer.save(tmp_path))
    assert update(trainer, prepared(trainer), CASE.objective).applied


def test_frozen_weights_are_saved_and_published_too(tmp_path: Path):
    case = CASES["frozen with adapters"]
    pair, local = built(2, case), built(0, case)
    assert same(weights(pair), {name: tensor.detach() for name, tensor in weights(local).items()})
    asyncio.run(local.save(tmp_path / "local"))
    asyncio.run(pair.load(tmp_path / "local"))
    assert same(masters(pair)["policy"], masters(local)["policy"])


@pytest.mark.parametrize("name", ["policy", "untied", "frozen with adapters"])
def test_the_exported_model_is_that_of_the_single_process(tmp_path: Path, name: str):
    case = CASES[name]
    for size in (0, 2):
        asyncio.run(built(size, case).save(tmp_path / str(size)))
    left, right = (tmp_path / str(size) / "model" for size in (0, 2))
    assert sorted(path.name for path in left.iterdir()) == sorted(path.name for path in right.iterdir())
    assert same(*(load_file(folder / "model.safetensors") for folder in (left, right)))
    configs = [json.loads((folder / "config.json").read_text()) for folder in (left, right)]
    assert configs[0] == configs[1]


def test_a_reader_that_stops_early_does_not_leave_the_others_waiting():
    pair = built(2)
    whole = list(weights(pair))
    taken = pair.ranks.run(names_taken, pair.number)
    assert taken == [whole[:2], whole]
    assert list(weights(pair)) == whole


def names_taken(place: Any, number: int) -> list[str]:
    """Rank 0 stops after two weights, the others read on."""
    source, _ = finished(place.trainers[number].publish())
    taken: list[str] = []
    for name, _ in source:
        taken.append(name)
        if place.group.rank == 0 and len(taken) == 2:
            break
    return taken
