"""How micro-batches are dealt over ranks, and columns of bits; no processes needed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.errors import RunError
from trimtab.trainer.checkpoint import write_tensors
from trimtab.trainer.faults import NotFiniteError
from trimtab.trainer.rows import read_rows
from trimtab.trainer.sharded_ranks import Ranks, _bits, _from_bits, _packed, _unpacked
from trimtab.trainer.update import cut
from trimtab.types import Batch


def ranks_of(size: int) -> list[Ranks]:
    groups: list[Any] = [SimpleNamespace(rank=rank, size=size) for rank in range(size)]
    return [Ranks(group) for group in groups]


def tokens(batch: Batch, part: Any) -> int:
    return sum(int(batch.lengths_S[s]) + len(batch.prompts_P[int(batch.group_S[s])]) for s in part)


@given(
    lengths=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=5), min_size=1, max_size=4),
    size=st.integers(2, 5),
    limit=st.integers(4, 60),
)
@settings(max_examples=80, deadline=None)
def test_every_answer_is_computed_once_and_all_ranks_make_equally_many_passes(lengths, size, limit):
    batch = ragged_batch(20, prompts=[3 + i for i in range(len(lengths))], answers=lengths)
    batch = POLICY.weighted(with_advantages(batch))

    def cutting(most: int) -> tuple[Batch, list[list[int]]]:
        return cut(batch, POLICY, most, None, skip_silent=False)

    shares = []
    for ranks in ranks_of(size):
        own, parts = ranks.cut(cutting, limit)
        shares.append(ranks.share(own, parts))
    idle = batch.num_sequences
    assert len({len(share.parts) for share in shares}) == 1
    computed = sorted(s for share in shares for part in share.parts for s in part if s != idle)
    assert computed == (batch.lengths_S > 0).nonzero().flatten().tolist()
    if not computed:
        return
    told = torch.stack([share.mine_S for share in shares]).sum(0)
    assert told.tolist() == [1] * (idle + 1), "each sequence's numbers come from exactly one rank"
    for share in shares:
        assert share.batch.num_sequences == idle + 1
        assert not share.batch.mask_T[-1]
        assert share.batch.weights_T[-1] == 0.0
    sums = [sum(tokens(batch, [s for s in part if s != idle]) for part in share.parts) for share in shares]
    largest = max(tokens(batch, part) for _, parts in [cutting(limit)] for part in parts)
    assert max(sums) - min(sums) <= largest


def test_micro_batches_are_cut_finer_rather_than_ranks_left_idle():
    batch = POLICY.weighted(with_advantages(ragged_batch(20, prompts=(4,), answers=((6,) * 8,))))

    def cutting(most: int) -> tuple[Batch, list[list[int]]]:
        return cut(batch, POLICY, most, None, skip_silent=False)

    assert len(cutting(1000)[1]) == 1
    _, parts = ranks_of(4)[0].cut(cutting, 1000)
    assert [len(part) for part in parts] == [2, 2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bits_come_back_as_they_were(dtype: torch.dtype):
    column = torch.tensor([0.1, -0.0, torch.nan, torch.inf, -3e30], dtype=dtype)
    again = _from_bits(_bits(column), dtype)
    assert torch.equal(again.view(torch.uint8), column.view(torch.uint8))
    assert _from_bits(_bits(torch.tensor([True, False])), torch.bool).tolist() == [True, False]


def test_rows_are_those_of_a_sharded_tensor():
    for total in (0, 1, 5, 7, 12):
        for size in (1, 2, 3, 5):
            chunks = torch.arange(total).chunk(size) if total else ()
            bounds = [ranks.rows(total) for ranks in ranks_of(size)]
            expected = [chunk.tolist() for chunk in chunks] + [[]] * (size - len(chunks))
            assert [list(range(*bound)) for bound in bounds] == expected


@given(rows=st.integers(0, 9), written=st.integers(1, 4), read=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_rows_written_by_some_ranks_are_read_by_others(tmp_path_factory, rows, written, read):
    folder: Path = tmp_path_factory.mktemp("rows")
    whole = torch.randn(rows, 3)
    files = []
    for ranks in ranks_of(written):
        start, stop = ranks.rows(rows)
        files.append(folder / f"{ranks.rank}.safetensors")
        write_tensors(files[-1], {"matrix": whole[start:stop], "number": torch.tensor(4.0)})
    found = [read_rows(files, ranks.rows) for ranks in ranks_of(read)]
    assert torch.equal(torch.cat([one["matrix"] for one in found]), whole)
    assert all(float(one["number"]) == 4.0 for one in found)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path):
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    write_tensors(files[0], {"x": torch.zeros(2)})
    write_tensors(files[1], {"y": torch.zeros(2)})
    with pytest.raises(RunError, match="other tensors"):
        read_rows(files, lambda total: (0, total))


def test_a_fault_travels_as_words():
    fault = NotFiniteError("the advantage", ["a#0/1", "b#0/0"], spoilt=True)
    again = _unpacked(_packed(fault))
    assert isinstance(again, NotFiniteError)
    assert (again.tensor, again.keys, again.spoilt) == (fault.tensor, fault.keys, fault.spoilt)
    plain = _unpacked(_packed(RunError("no space left")))
    assert type(plain) is RunError
    assert str(plain) == "no space left"
