"""The benchmarks of an update alone: their page, and when a compiled update would pay."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.speed import compiling, document, update

UPDATE_PAGE = Path(__file__).parents[2] / "docs" / "speed_update.md"


def test_the_updates_page_has_one_place_for_every_table():
    page = UPDATE_PAGE.read_text(encoding="utf-8")
    places = [update.place(scene, small=small) for scene in update.DTYPES for small in (False, True)]
    assert sorted(re.findall(r"<!-- table (.*?): ", page)) == sorted(name for name, _ in places)
    for name, command in places:
        assert "| new |" in document.filled(page, name, ["| new |"], command)


def test_a_compiled_update_pays_when_its_start_up_is_earned():
    assert compiling.start_up([5.0, 2.0], [1.0, 1.0, 3.0]) == pytest.approx(5.0)
    assert compiling.pays_after(10.0, 2.0, 1.5) == 20
    assert compiling.pays_after(10.0, 2.0, 2.0) is None
    assert compiling.pays_after(-1.0, 2.0, 1.0) == 1


def test_the_table_of_compiled_updates_says_when_none_pays():
    seconds = {
        compiling.FAST: [1.0] * 4,
        compiling.EAGER: [2.0] * 4,
        compiling.COMPILED: [9.5, 1.5, 1.5, 1.5],
    }
    case = {
        "scene": {"name": "tiny"},
        "dtype": "float32",
        "tokens": 7,
        "seconds": seconds,
        "again": [2.5, 1.5],
    }
    told = {"warm": 2, "cases": [case]}
    lines = list(compiling.table(told))
    assert "| 1.500 | 8.0 | 1.0 | after 16 updates | never |" in lines[4]
    assert lines[-1].endswith("in every case.")
    seconds[compiling.FAST] = [3.0] * 4
    assert list(compiling.table(told))[-1].endswith("passes on: tiny.")
