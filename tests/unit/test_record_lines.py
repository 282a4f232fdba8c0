"""JSON Lines: valid after a cut at any byte, read on without missing or repeating a line."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import math
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from trimtab.record.jsonl import JsonlTail, JsonlWriter, line, plain

LINES = [{"step": 1, "text": "plain"}, {"step": 2, "text": "Größe 漢字 🦀\n"}, {"step": 3, "text": "x" * 200}]


def write(path: Path, lines=LINES) -> bytes:
    writer = JsonlWriter(path)
    for fields in lines:
        writer.write(fields)
    writer.close()
    return path.read_bytes()


def read(tail: JsonlTail) -> list:
    return [json.loads(text) for _, text in tail.read()]


def test_a_cut_at_any_byte_loses_only_the_torn_line_and_writing_goes_on(tmp_path):
    whole = write(tmp_path / "whole.jsonl")
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    path = tmp_path / "cut.jsonl"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends)
        tail = JsonlTail(path)
        assert read(tail) == LINES[:complete]
        assert tail.torn == cut - ([0, *ends][complete])
        write(path, [{"step": 9}])
        assert read(tail) == [{"step": 9}], "a tail that saw the torn file reads on rightly"
        assert read(JsonlTail(path)) == [*LINES[:complete], {"step": 9}]


def test_a_long_torn_line_is_found_across_blocks(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"y" * 200_000)
    write(path, [{"b": 2}])
    assert read(JsonlTail(path)) == [{"a": 1}, {"b": 2}]


def test_a_tail_sees_each_line_once_whatever_the_chunks(tmp_path):
    path = tmp_path / "x.jsonl"
    whole = b"".join(line(fields) for fields in LINES)
    tail, seen = JsonlTail(path), []
    assert read(tail) == []
    for i in range(0, len(whole), 7):
        with path.open("ab") as file:
            file.write(whole[i : i + 7])
        seen += read(tail)
    assert seen == LINES
    assert tail.torn == 0
    assert json.loads(tail.at(len(line(LINES[0])))) == LINES[1]


def test_what_is_not_finite_is_refused_and_not_written(tmp_path):
    writer = JsonlWriter(tmp_path / "x.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.write({"x": math.nan})
    writer.close()
    assert (tmp_path / "x.jsonl").read_bytes() == b""


def test_half_a_surrogate_pair_is_written_as_a_question_mark():
    assert line({"detail": "bad \ud800é"}) == '{"detail":"bad ?é"}\n'.encode()


class Colour(StrEnum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Inner:
    bound: float = math.inf
    path: Path = Path("a/b")


def test_settings_become_plain():
    assert plain({"inner": Inner(), "list": (1, None, Colour.RED), 3: np.float32(0.5), "s": {"b", "a"}}) == {
        "inner": {"bound": "inf", "path": "a/b"},
        "list": [1, None, "red"],
        "3": 0.5,
        "s": ["a", "b"],
    }
