"""Audits: the built-in cases, what is counted, disagreements, and ``trimtab audit``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import main
from trimtab.errors import DataError, SettingError
from trimtab.evaluation.audit import (
    CORPORA,
    EXPLOIT_KINDS,
    KINDS,
    RIGHT_KINDS,
    Case,
    Form,
    Share,
    audit,
    built_in,
    disagreements,
    find_form,
    form_of,
    read_rows,
)
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric

TAGS = {"tags": ["think", "answer"]}


def rubric_of(name: str, **options: Any) -> Rubric:
    return build_rubric(RewardConfig(graders=(GraderConfig(name=name, options=options),)))


def cases_of(corpus: str) -> list[Case]:
    return built_in(corpus, TAGS if corpus == "format" else {})


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_corpus_has_right_wrong_and_hostile_cases_of_known_kinds_each_once(corpus: str):
    cases = cases_of(corpus)
    assert {case.kind for case in cases} <= set(KINDS)
    assert all(case.right is (case.kind in RIGHT_KINDS) for case in cases)
    assert sum(case.kind in EXPLOIT_KINDS for case in cases) >= 10
    keys = Counter((json.dumps(case.answer), case.response) for case in cases)
    labels = {(json.dumps(case.answer), case.response, case.right) for case in cases}
    assert len(labels) == len(keys), "one response has two labels"
    assert len(cases) >= {"answer": 400, "mathematics": 600, "code": 80, "format": 25}[corpus]


def test_every_exploit_and_mistake_that_the_issue_names_has_cases():
    kinds = {case.kind for corpus in CORPORA for case in cases_of(corpus)}
    assert kinds == set(KINDS)


@pytest.mark.parametrize("corpus", ["answer", "mathematics", "format"])
def test_our_graders_stay_within_the_limits_on_the_built_in_cases(corpus: str):
    rubric = rubric_of(corpus, **(TAGS if corpus == "format" else {}))
    result = asyncio.run(audit(corpus, rubric, cases_of(corpus)))
    assert (result.share("false positive").value or 0.0) <= 0.005
    assert result.share("false negative").count == 0
    assert result.share("ungraded").count == 0
    assert result.exploits.count == 0


def test_no_cheating_program_is_graded_right():
    cheap = ("early exit", "hard-coded", "equal to all", "near miss", "spelling", "plain")
    cases = [case for case in cases_of("code") if case.kind in cheap]
    result = asyncio.run(audit("code", rubric_of("code"), cases))
    assert [one.case.response for one in result.asked if one.verdict] == []


def lenient(tmp_path: Path) -> str:
    """A grader as they are often written: the gold answer stands somewhere."""
    path = tmp_path / "mine.py"
    path.write_text(
        "def contains(completion, answer):\n    return float(answer in completion[-1]['content'])\n"
        "def half(completion, answer):\n    return 0.5\n"
        "def never(completion, answer):\n    return None\n"
    )
    return str(path)


def test_a_lenient_grader_is_found_out(tmp_path: Path):
    rubric = rubric_of(f"{lenient(tmp_path)}:contains")
    form = asyncio.run(find_form(rubric))
    assert str(form) == "\\boxed{{}}"
    result = asyncio.run(audit("contains", rubric, built_in("answer", {}, form)))
    shares = {
        kind: result.share("false positive", lambda case, kind=kind: case.kind == kind) for kind in KINDS
    }
    for kind in ("hedged", "unmarked", "only thought", "overridden", "many answers", "broken"):
        assert shares[kind].value == 1.0, kind
    assert result.exploits.count >= 24
    assert result.share("false negative", lambda case: case.kind == "spelling").count >= 10


def test_partial_values_and_missing_grades_are_counted_apart(tmp_path: Path):
    cases = [
        Case(kind="plain", right=True, answer="7", response="7"),
        Case(kind="near miss", right=False, answer="7", response="8"),
        Case(kind="your rows", right=None, answer="7", response="9"),
    ]
    half = asyncio.run(audit("half", rubric_of(f"{lenient(tmp_path)}:half"), cases))
    assert half.share("partial") == Share(1, 1)
    assert half.share("false negative") == Share(1, 1)
    assert half.share("false positive") == Share(0, 1)
    never = asyncio.run(audit("never", rubric_of(f"{lenient(tmp_path)}:never"), cases))
    assert never.share("ungraded") == Share(3, 3)
    assert never.share("false negative") == Share(0, 0)
    assert str(Share(0, 0)) == "-"
    share, found = disagreements(half, never)
    assert (share, found) == (Share(0, 0), [])


def test_forms_follow_the_options_of_the_grader():
    assert form_of("answer", {}).put("7") == "#### 7"
    assert form_of("answer", {"marker": "<answer>"}).put("7") == "<answer>7</answer>"
    assert form_of("answer", {"marker": "last-line"}).put("7") == "7"
    assert form_of("mathematics", {}).put("7") == "\\boxed{7}"
    assert form_of("mathematics", {"markers": ["Answer:"]}).put("7") == "Answer: 7"
    assert form_of("mine.py:f", {}) is None
    assert Form.of("<{}>").put("7") == "<7>"
    with pytest.raises(SettingError, match="did you mean 'mathematics'"):
        built_in("mathematic", {})
    with pytest.raises(SettingError, match="tags, boxed and json_keys alone"):
        built_in("format", {"regex": "x"})


def test_rows_of_ones_own_are_read_and_bad_ones_named(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"answer": 7, "response": "7", "right": true, "kind": "mine"}\n\n{"answer": "7", "response": "8"}\n'
    )
    assert [(case.right, case.kind) for case in read_rows(path)] == [(True, "mine"), (None, "your rows")]
    path.write_text('{"response": "7", "right": 1}\nx\n{"answer": "7"}\n')
    with pytest.raises(DataError, match=r"3 lines cannot be used:\n.*line 1: right must be true or false"):
        read_rows(path)
    path.write_bytes(b'{"response": "7"}\n{"response": "\xe9"}\n{"response": "a\xe2\x80\xa8b"}\n')
    with pytest.raises(DataError, match=r"1 lines cannot be used:\n.*line 2: not UTF-8"):
        read_rows(path)


def test_a_function_gets_the_gold_by_its_usual_names_and_the_columns_of_its_rows(tmp_path: Path):
    (tmp_path / "trl.py").write_text(
        "def plain(completions, solution, ground_truth):\n"
        "    return [float(c == f'#### {s}' == f'#### {g}') "
        "for c, s, g in zip(completions, solution, ground_truth)]\n"
        "def level(completions, hard):\n"
        "    return [float(h) for h in hard]\n"
    )
    rubric = rubric_of(f"{tmp_path}/trl.py:plain")
    asked = [Case(kind="plain", right=True, answer="7", response="#### 7")]
    assert asyncio.run(audit("x", rubric, asked)).asked[0].accepted
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"response": "a", "hard": 1, "right": true, "prompt": [{"role": "user", "content": "q"}]}\n'
        '{"response": "a", "hard": 0, "right": true}\n'
    )
    result = asyncio.run(audit("x", rubric_of(f"{tmp_path}/trl.py:level"), read_rows(rows)))
    assert [one.accepted for one in result.asked] == [True, False]
    with pytest.raises(SettingError, match="graded nothing at all; the first reason: .*no such column"):
        asyncio.run(find_form(rubric_of(f"{tmp_path}/trl.py:level")))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["audit", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_prints_a_table_or_json_and_its_exit_code_follows_the_limits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    code, out, _ = run(capsys, "answer")
    assert code == 0
    assert "many answers" in out
    place = f"{lenient(tmp_path)}:contains"
    code, out, _ = run(capsys, place, "--kind", "hedged", "--show", "1")
    assert code == 1
    assert "form: \\boxed{{}} (found by trying; --form sets it)" in out
    assert "... and " in out
    assert "exceeded: false positives: " in out
    code, out, _ = run(capsys, place, "--kind", "hedged", "--json", "--max-false-positives", "1")
    assert code == 0
    (grader,) = json.loads(out)["graders"]
    assert grader["false_positive"]["share"] == 1.0
    assert grader["kinds"]["hedged"]["false_positive"]["count"] == grader["cases"] == len(grader["faults"])


def test_kinds_may_hold_brackets(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"answer": "5", "response": "#### 5", "right": true, "kind": "[/red] [bold]x"}')
    code, out, _ = run(capsys, "answer", "--corpus", "none", "--rows", str(rows))
    assert code == 0
    assert "[/red] [bold]x" in out


def test_two_graders_are_compared_on_rows_without_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    rows = [{"answer": "7", "response": text} for text in ("#### 7", "7 of them\n#### 8", "#### 8")]
    path.write_text("\n".join(map(json.dumps, rows)))
    place = f"{lenient(tmp_path)}:contains"
    words = ("answer", place, "--corpus", "none", "--rows", str(path))
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "disagreements: 1/3" in out
    assert "only contains accepts" in out or f"only {place} accepts" in out
    code, out, _ = run(capsys, *words, "--max-disagreement", "0.1", "--json")
    assert code == 1
    told = json.loads(out)
    assert told["disagreement"]["count"] == 1
    assert told["disagreements"] == [
        {"answer": "7", "response": "7 of them\n#### 8", "accepted": [False, True]}
    ]
    code, out, _ = run(
        capsys, "answer", "answer", "--option", "2:marker=@@", "--corpus", "none", "--rows", str(path)
    )
    assert "disagreements: 1/3" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("answer", "answer", "answer"), "one grader, or two"),
        (("answer", "--option", "2:marker=#"), "for grader 2, and there are 1"),
        (("answer", "--corpus", "none"), "there are no cases"),
        (("answer", "--corpus", "cod"), "did you mean 'code'"),
        (("answer", "--kind", "hegded"), "did you mean 'hedged'"),
        (("answer", "--rows", "no.jsonl"), "no.jsonl cannot be read"),
        (("answer", "--form", "####"), "has {} where it stands"),
        (("answer", "--max-ungraded", "nan"), "--max-ungraded is a share from 0 to 1"),
        (("answer", "--show", "-1"), "--show must be >= 0"),
        (
            (
                "judge",
                *(f"--option={o}" for o in ("url=http://127.0.0.1/v1", "model=m", "api_key_env=NO_KEY")),
            ),
            "environment variable NO_KEY",
        ),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str):
    code, _, err = run(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert told in err


def test_a_function_whose_form_cannot_be_found_needs_it_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    code, _, err = run(capsys, f"{lenient(tmp_path)}:half")
    assert code == 2
    assert "say how a response gives its answer with --form" in err
