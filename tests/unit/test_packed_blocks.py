"""How packed answers are cut into blocks of attention: in order, within bounds, and as cheaply as can be."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch

from trimtab.trainer.packed import EXTRA, QUERIES, SCORES, Stretch, blocks_of

PROMPT = 9


def stretches(lengths: Sequence[int]) -> list[Stretch]:
    """Answers to one prompt, longest first."""
    begins = itertools.accumulate(lengths, initial=PROMPT)
    return [(begin, size, ((0, PROMPT),)) for begin, size in zip(begins, lengths, strict=False)]


def cost(rows: Sequence[int], heads: int) -> float:
    """Of a block of these lengths, longest first; infinite where it has too many scores."""
    scores = heads * len(rows) * rows[0] * (rows[0] + PROMPT)
    return scores + EXTRA if scores <= SCORES or len(rows) == 1 else float("inf")


def cheapest(lengths: Sequence[int], heads: int) -> float:
    """The least cost over every way to cut."""
    found = []
    for cuts in itertools.product((False, True), repeat=len(lengths) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut]
        parts = itertools.pairwise([0, *ends, len(lengths)])
        found.append(sum(cost(lengths[begin:end], heads) for begin, end in parts))
    return min(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("heads", [3, 40])
def test_no_other_cut_costs_less(seed: int, heads: int):
    random = torch.Generator().manual_seed(seed)
    lengths = sorted(torch.randint(1, 120, (9,), generator=random).tolist(), reverse=True)
    found = list(blocks_of(stretches(lengths), heads))
    at, spent = 0, 0.0
    for one in found:
        rows = lengths[at : at + one.rows]
        assert (one.begin, one.end - one.begin, one.width) == (PROMPT + sum(lengths[:at]), sum(rows), rows[0])
        at, spent = at + one.rows, spent + cost(rows, heads)
    assert at == len(lengths)
    assert spent == cheapest(lengths, heads)


def test_short_answers_of_any_length_are_one_block_and_a_long_one_stands_alone():
    assert [one.rows for one in blocks_of(stretches(range(20, 12, -1)), 6)] == [8]
    assert [one.rows for one in blocks_of(stretches([200, *range(20, 12, -1)]), 6)] == [1, 8]


def test_a_very_long_answer_is_cut_by_queries():
    widths = [one.width for one in blocks_of(stretches([2 * QUERIES + 5]), 2)]
    assert widths == [QUERIES, QUERIES, 5]
