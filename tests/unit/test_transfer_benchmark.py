"""The benchmark of pushes: what it writes it reads back, and its table goes between the marks of its page."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks import transfer

PUSHES = [
    transfer.Measured("sums", "in process", 2_000_000, [0.5, 0.25, 1.0]),
    transfer.Measured("sums", "vLLM", 2_000_000, [2.0, 4.0, 1.0]),
]
TOLD = transfer.Told(PUSHES, torch="2.13.0", threads=4, python="3.11.7", cores=8)
ROWS = [
    "| sums | in process | 2.0 | 0.5000 | 0.2500 to 1.0000 | 4 |",
    "| sums | vLLM | 2.0 | 2.0000 | 1.0000 to 4.0000 | 1 |",
]


def test_what_was_written_is_read_back(tmp_path: Path):
    TOLD.write(tmp_path / "told.json")
    assert transfer.Told.read(tmp_path / "told.json") == TOLD


def test_a_file_without_cores_says_none(tmp_path: Path):
    file = tmp_path / "told.json"
    TOLD.write(file)
    found = json.loads(file.read_text())
    del found["cores"]
    file.write_text(json.dumps(found))
    assert "8 cores, 4 threads of torch 2.13.0" in TOLD.machine()
    assert "cores" not in transfer.Told.read(file).machine()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pushes": [{"model": "sums"}]}'])
def test_another_file_is_refused(tmp_path: Path, text: str):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(SystemExit, match=r"other\.json is no file of benchmarks/transfer\.py --json"):
        transfer.Told.read(tmp_path / "other.json")


def test_a_report_measures_nothing_and_goes_between_the_marks(tmp_path: Path, monkeypatch, capsys):
    page, file = tmp_path / "page.md", tmp_path / "told.json"
    page.write_text(f"before\n{transfer.START}\nNot measured yet.\n{transfer.END}\nafter\n")
    TOLD.write(file)
    monkeypatch.setattr(transfer, "PAGE", page)
    monkeypatch.setattr(transfer, "pushed", lambda asked: pytest.fail("it measured"))
    monkeypatch.setattr(sys, "argv", ["transfer.py", "--report", str(file), "--write"])
    transfer.main()
    lines = [*transfer.HEAD, *ROWS, "", TOLD.machine()]
    assert page.read_text().splitlines() == ["before", transfer.START, *lines, transfer.END, "after"]
    assert capsys.readouterr().out.splitlines() == lines


def test_the_page_has_the_marks_once(tmp_path: Path):
    assert transfer.PAGE.read_text(encoding="utf-8").count(transfer.START) == 1
    (tmp_path / "page.md").write_text("no marks")
    with pytest.raises(SystemExit, match="0 places"):
        transfer.write_between(tmp_path / "page.md", [])
