"""What reading keeps of a row: every column but the prompt's, and where the row stood."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimtab.data.reading import Item, read_items
from trimtab.data.report import Problems
from trimtab.data.schemas import choose_schema
from trimtab.data.sources import read_files


def items_of(path: Path, rows: list[dict[str, Any]], **mapping: str) -> list[Item]:
    path.write_text("\n".join(map(json.dumps, rows)))
    problems = Problems()
    sources = read_files([str(path)], problems)
    schema, _ = choose_schema("auto", [source.row for source in sources])
    items = read_items(sources, schema, mapping, problems)
    assert problems.count == 0
    return items


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ({"prompt": "3+4=", "answer": 7, "level": 7, "tag": 7}, {"level": 7, "tag": 7}),
        ({"prompt": "3+4=", "solution": "7", "year": 2024}, {"solution": "7", "year": 2024}),
        ({"prompt": "3+4=", "ground_truth": "7", "id": 7}, {"ground_truth": "7"}),
        ({"question": "3+4=", "answer": "3+4\n#### 7", "n": 1}, {"answer": "3+4\n#### 7", "n": 1}),
        (
            {
                "prompt": "3+4=",
                "reward_model": {"style": "rule", "ground_truth": "7"},
                "extra_info": {"index": 3},
            },
            {"reward_model": {"style": "rule", "ground_truth": "7"}, "extra_info": {"index": 3}},
        ),
        (
            {"prompt": "3+4=", "reward_spec": {"ground_truth": "7"}, "env_class": "gsm8k"},
            {"reward_spec": {"ground_truth": "7"}, "env_class": "gsm8k"},
        ),
    ],
)
def test_no_column_is_lost_for_having_the_answer_s_value_or_another_name(
    tmp_path: Path, row: dict[str, Any], kept: dict[str, Any]
):
    (item,) = items_of(tmp_path / "rows.jsonl", [row])
    assert str(item.answer) == "7"
    assert item.meta == kept


def test_a_mapped_column_keeps_its_own_name_too(tmp_path: Path):
    (item,) = items_of(tmp_path / "rows.jsonl", [{"prompt": "3+4=", "final": "7"}], answer="final")
    assert (item.answer, item.meta) == ("7", {"final": "7"})


def test_every_item_knows_its_row(tmp_path: Path):
    rows = [{"prompt": f"{i}+1=", "answer": i + 1} for i in range(3)]
    assert [item.place for item in items_of(tmp_path / "rows.jsonl", rows)] == [
        "rows.jsonl row 1",
        "rows.jsonl row 2",
        "rows.jsonl row 3",
    ]
