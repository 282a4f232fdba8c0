"""Reading metrics.jsonl in blocks: the same history as line by line, whatever stands in the file."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import DataError
from trimtab.record import bulk
from trimtab.record.reader import RunReader


def line(step: object, time: object = 1.5, missing: dict[str, str] | None = None, **metrics: object) -> str:
    told = {"missing": missing} if missing else {}
    return json.dumps({"step": step, "time": time, "metrics": metrics, **told})


def regular(count: int, start: int = 0) -> list[str]:
    return [
        line(s, 10.0 + s, **{"a/x": s / 7, "b": 3, "c/é": -1e300 * s}) for s in range(start, start + count)
    ]


CASES = {
    "regular": regular(500),
    "integers and floats mixed": [line(s, s, a=s if s % 2 else s + 0.25) for s in range(300)],
    "a key that comes later": [*regular(100), *[line(s, d=1.0) for s in range(100, 300)]],
    "a key in one line that is not looked at": [*regular(777), line(777, rare=5.0), *regular(300, 778)],
    "a key with a gap": [line(s, **({"a": 1.0} if s % 3 else {"b": 2.0})) for s in range(200)],
    "no metrics at all": [line(s) for s in range(50)],
    "missing": [line(s, missing={"k": "2 NaN"} if s % 5 == 0 else None, a=1.0) for s in range(200)],
    "a step again, after a resume": [*regular(200), *regular(300, 150)],
    "steps with gaps": [line(s * 10, a=s) for s in range(100)],
    "no JSON in the middle": [*regular(100), "{torn", *regular(100, 100)],
    "a line without metrics": [*regular(100), '{"step": 100, "time": 1}', *regular(100, 101)],
    "text as a value": [*regular(100), line(100, a="high", b=2.0), *regular(100, 101)],
    "null, list and truth as values": [line(0, a=None, b=[1], c=1.0), line(1, a=True, c=2.0)],
    "not a number": [*regular(10), '{"step":10,"time":1.0,"metrics":{"b":NaN,"a/x":Infinity,"z":1}}'],
    "a number beyond 64 bits": [*regular(5), f'{{"step":5,"time":1,"metrics":{{"b":1{"0" * 400}}}}}'],
    "a step that is none": [
        line("7", a=1.0),
        line(1.5, a=1.0),
        line(True, a=1.0),
        line(10**30, a=1.0),
        line(3, a=1.0),
    ],
    "an object that is none": ["[1]", "3", '"x"', "null", line(0, a=1.0)],
    "deep nesting": ["[" * 100_000, line(0, a=1.0)],
    "an empty line": ["", line(0, a=1.0), "", line(1, a=2.0)],
    "bytes that are no UTF-8": [
        line(0, a=1.0),
        '{"step":1,"time":1,"metrics":{"\udcff":1.0}}',
        line(2, a=2.0),
    ],
    "a key named twice": ['{"step":0,"time":1,"metrics":{"a":1.0,"a":2.0}}', line(1, a=2.0)],
}


def history_of(folder: Path, lines: list[str], tail: str = "") -> RunReader:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text("{}")
    text = "".join(f"{one}\n" for one in lines) + tail
    (folder / "metrics.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    return RunReader(folder)


def assert_same(one: RunReader, other: RunReader) -> None:
    assert one.history.keys == other.history.keys
    assert np.array_equal(one.history.times.steps, other.history.times.steps)
    assert np.array_equal(one.history.times.values, other.history.times.values)
    for key in other.history.keys:
        for found, expected in zip(one.history.series(key), other.history.series(key), strict=True):
            assert np.array_equal(found, expected), key
    for step in other.history.times.steps.tolist():
        assert one.history.missing(step) == other.history.missing(step)
    assert [d.offset for d in one.damage] == [d.offset for d in other.damage]
    assert one.torn == other.torn


@pytest.mark.parametrize("block", [400, 5_000, 1 << 24])
@pytest.mark.parametrize("case", CASES)
def test_blocks_and_lines_agree(case: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = history_of(tmp_path, CASES[case], tail='{"step":9')
    monkeypatch.setattr(bulk, "WORTH", 0)
    monkeypatch.setattr(bulk, "BLOCK", block)
    assert_same(history_of(tmp_path, CASES[case], tail='{"step":9'), lines)


def test_a_regular_file_is_read_in_blocks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "WORTH", 0)
    monkeypatch.setattr(RunReader, "_append", lambda self, lines: pytest.fail("a line was read alone"))
    assert len(history_of(tmp_path, regular(5000)).history) == 5000


def test_what_comes_later_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "WORTH", 0)
    reader = history_of(tmp_path, regular(300), tail=regular(1, 300)[0][:20])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(regular(1, 300)[0][20:] + "\n")
    assert reader.refresh() == 1
    assert reader.history.last_step == 300
    assert reader.torn == {}


def test_a_value_that_is_no_number_is_told_of_and_the_rest_is_kept(tmp_path: Path):
    history = history_of(tmp_path, CASES["not a number"]).history
    assert history.metrics(10) == {"z": 1.0}
    assert history.missing(10) == {"b": "no finite number", "a/x": "no finite number"}


def test_many_keys_are_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "WORTH", 0)
    lines = [line(s, **{f"k{s}-{i}": 1.0 for i in range(100)}) for s in range(200)]
    assert len(history_of(tmp_path, lines).history.keys) == 20_000


@pytest.mark.parametrize("text", ["[]", '{"schema": "2"}', "x", "null"])
def test_a_description_that_is_none_is_refused(text: str, tmp_path: Path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json"):
        RunReader(tmp_path)
