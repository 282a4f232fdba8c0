"""Files of rows: their kinds, and what in them cannot be read, told by its row."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import char_tokenizer
from trimtab.data.prompts import DataConfig, load_prompts
from trimtab.errors import DataError

CHAT = (
    "{% for m in messages %}<{{m.role[0]}}>{{m.content}}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def load(file: Path) -> Any:
    tokenizer = char_tokenizer()
    tokenizer.chat_template = CHAT
    model: Any = SimpleNamespace(tokenizer=tokenizer, context=64)
    return load_prompts(DataConfig(files=(str(file),), held_out=0), model, 16)


def test_parquet_and_json_lists(tmp_path: Path):
    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{i}+1="}],
            "reward_model": {"style": "rule", "ground_truth": str(i + 1)},
            "extra_info": {"index": i},
        }
        for i in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    for name in ("rows.parquet", "rows.json"):
        loaded = load(tmp_path / name)
        assert loaded.report.schema is not None
        assert loaded.report.schema[0] == "verl"
        prompt = loaded.train[1]
        assert (prompt.text, prompt.answer, prompt.task) == ("<u>1+1=<a>", "2", "sums")
        assert prompt.messages == ({"role": "user", "content": "1+1="},)
        assert prompt.meta["extra_info"] == {"index": 1}


def test_files_that_cannot_be_read_say_why(tmp_path: Path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    (tmp_path / "bad.json").write_text('{"a": 1}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "rows.csv").write_text("a,b")
    for name, told in (
        ("none.jsonl", "no file"),
        ("rows.csv", ".json, .jsonl, .parquet"),
        ("bad.parquet", "parquet"),
        ("bad.json", "list of rows"),
        ("deep.json", "not valid JSON"),
    ):
        with pytest.raises(DataError, match=told):
            load(tmp_path / name)


def test_lines_that_are_no_text_no_json_or_no_characters_are_named(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(
        b'\xef\xbb\xbf{"prompt": "1+1=", "answer": "2"}\n'
        b'{"prompt": "caf\xe9", "answer": "2"}\n'
        b'{"prompt": "a", "answer": ' + b"[" * 100_000 + b"}\n"
        b'{"prompt": "half \\ud800", "answer": "2"}\n'
        b'{"prompt": "1\xe2\x80\xa82", "answer": "2"}\n'
    )
    with pytest.raises(DataError) as told:
        load(file)
    lines = str(told.value).splitlines()
    assert lines[0].startswith("3 rows cannot be used")
    assert "row 2: not UTF-8" in lines[1]
    assert "row 3: not JSON" in lines[2]
    assert "row 4: prompt holds half a surrogate pair" in lines[3]
