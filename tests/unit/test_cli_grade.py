"""``trimtab grade``: one grade as JSON, or a file of them, in order, with nothing lost."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import main
from trimtab.cli.words import joined, option
from trimtab.errors import SettingError

JUDGE = ("--option", "url=http://127.0.0.1:9/v1", "--option", "model=m", "--option", "retries=0")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """(exit code, grades on stdout, stderr)."""
    code = main(["grade", *words])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (("answer", "--answer", "7", "--response", "#### 7"), "right"),
        (("answer", "--answer", "7", "--response", "#### 8"), "wrong"),
        (("answer", "--answer", "7", "--response", "Result: 7", "--option", "marker=Result:"), "right"),
        (("answer", "--answer", "-7", "--response", "-7"), "right"),
        (("mathematics", "--answer", r"\frac12", "--response", r"-1, no: \boxed{0.5}"), "right"),
        (("mathematics", "--answer", "1/3", "--response", "0.3333", "--option", "tolerance=1e-3"), "right"),
        (("format", "--response", "<a>x</a>", "--option", 'tags=["a"]'), "right"),
        (("answer", "--answer", "x.y=3", "--response", "f.x=3"), "wrong"),
        (("answer", "--answer", "3", "--response", "3", "--prompt", "How many?"), "right"),
    ],
)
def test_one_grade_is_printed_as_json(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], state: str):
    code, (grade,), _ = run(capsys, *words)
    assert code == 0
    assert grade.keys() == {"state", "value", "parts", "detail"}
    assert grade["state"] == state
    assert grade["value"] == grade["parts"][words[0]] == float(state == "right")


def test_code_is_graded_by_tests_in_json(capsys: pytest.CaptureFixture[str]):
    tests = json.dumps([{"stdin": "2", "stdout": "4"}, {"assert": "assert f(1) == 2"}])
    response = (
        "So:\n```python\ndef f(n): return 2 * n\nif __name__ == '__main__': print(f(int(input())))\n```"
    )
    words = ("code", "--answer", tests, "--response", response, "--option", "partial=true")
    _, (grade,), _ = run(capsys, *words)
    assert grade["state"] in ("right", "partial")
    assert grade["value"] >= 0.5
    code, (grade,), _ = run(capsys, "code", "--answer", "no tests", "--response", response)
    assert (code, grade["state"]) == (1, "not_gradable")


def test_a_response_may_come_from_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("so\n#### 7\n"))
    _, (grade,), _ = run(capsys, "answer", "--answer", "7", "--response", "-")
    assert grade["state"] == "right"


def test_a_file_is_graded_line_by_line_in_order(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    rows = [{"answer": i % 10, "response": f"#### {i}", "extra": [i]} for i in range(200)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    code, grades, err = run(capsys, "answer", "--file", str(path))
    assert (code, err, len(grades)) == (0, "", 200)
    assert [grade["value"] for grade in grades] == [float(i < 10) for i in range(200)]


def test_bad_lines_are_named_keep_their_place_and_cost_nobody_elses_grade(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "rows.jsonl"
    lines = [
        '{"answer": "7", "response": "#### 7"}',
        '{"answer": "7", ',
        "[1]",
        '{"answer": "7", "response": 7}',
        '{"answer": "7", "response": "#### 7", "prompt": 5}',
        '{"answer": null, "response": "#### 7"}',
        '{"answer": "7", "response": "#### 7", "prompt": [{"content": "no role"}]}',
        '{"answer": "7", "response": "#### 8", "prompt": [{"role": "user", "content": "3+4"}]}',
    ]
    path.write_text("\n".join(lines))
    code, grades, err = run(capsys, "answer", "--file", str(path))
    assert code == 2
    states = [grade["state"] for grade in grades]
    assert states == ["right", *["not_gradable"] * 6, "wrong"]
    for number, told in (
        (2, "not JSON"),
        (3, "not a JSON object"),
        (4, "response as text"),
        (5, "prompt must be"),
        (7, "prompt must be"),
    ):
        assert f"rows.jsonl line {number}: " in grades[number - 1]["detail"]
        assert told in grades[number - 1]["detail"]
    assert err.count("trimtab: ") == 5


def test_lines_that_are_not_utf_8_are_named_and_the_others_graded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    row = b'{"answer": "7", "response": "#### 7"}\n'
    content = b"\xef\xbb\xbf" + row + row.replace(b"7", b"\xe9") + row
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    for place in (str(path), "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
        code, grades, err = run(capsys, "answer", "--file", place)
        assert (code, [grade["state"] for grade in grades]) == (2, ["right", "not_gradable", "right"])
        assert "line 2: not UTF-8" in grades[1]["detail"]
        assert err.count("\n") == 1
    assert err.startswith("trimtab: stdin line 2")


def test_a_function_is_asked_row_by_row_with_its_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    place = Path(__file__).parents[1] / "foreign_rewards.py"
    path = tmp_path / "rows.jsonl"
    rows = [{"solution": "7", "response": "#### 7"}, {"solution": "7", "response": "#### 8"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    code, grades, _ = run(capsys, f"{place}:trl_plain", "--file", str(path))
    assert (code, [grade["value"] for grade in grades]) == (0, [1.0, 0.0])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("anser", "--response", "7"), "did you mean 'answer'"),
        (("answer", "--option", "markr=#", "--response", "7"), "did you mean 'marker'"),
        (("answer", "--option", "marker", "--response", "7"), "--option key=value"),
        (("answer", "--answer", "7"), "either --response TEXT"),
        (("answer", "--file", "x", "--response", "7"), "either --response TEXT"),
        (("answer", "--file", "x", "--answer", "7"), "leave --answer and --prompt out"),
        (("answer", "--file", "no-such.jsonl"), "no-such.jsonl cannot be read: No such file"),
        (("no.py:f", "--response", "7"), "there is no file"),
        (
            ("judge", "--response", "7", *JUDGE, "--option", "api_key_env=NO_SUCH_KEY"),
            "environment variable NO_SUCH_KEY",
        ),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str):
    code, grades, err = run(capsys, *words)
    assert (code, grades, err.count("\n")) == (2, [], 1)
    assert told in err


def test_options_are_toml_or_text_and_values_may_begin_with_a_dash():
    assert option("tags=['a', 'b']") == ("tags", ["a", "b"])
    assert option("marker=####") == ("marker", "####")
    assert option("tolerance=1e-3") == ("tolerance", 0.001)
    assert option("marker=a=b") == ("marker", "a=b")
    with pytest.raises(SettingError, match="key=value"):
        option("=x")
    assert joined(["grade", "--answer", "-7", "-x"], ("--answer",)) == ["grade", "--answer=-7", "-x"]


def test_grading_an_answer_loads_no_training_machine():
    program = (
        "import sys\nfrom trimtab.cli import main\n"
        "main(['grade', 'mathematics', '--answer', '7', '--response', '7'])\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'sympy', 'reasoning_gym'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=environment)
