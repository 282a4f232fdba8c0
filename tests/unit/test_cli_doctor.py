"""``trimtab doctor``: what a user reads, what a machine reads, and the exit codes."""
# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from tests.doctor_cases import ramp, run_tables
from trimtab.cli import main
from trimtab.metrics import Mean
from trimtab.record.layout import RunFolder
from trimtab.record.reader import RunReader
from trimtab.record.writer import RunRecord

FINE = {"length/truncated": 0.01, "pass/at_1": 0.6, "reward/outcome": 0.6, "policy/entropy": 0.3}
CUT = {**FINE, "length/truncated": 0.97, "pass/at_1": 0.01, "reward/outcome": 0.01}
LONGER = {**FINE, "length/mean": ramp(30, 55, 12)}


def recorded(folder, values, *, ended=True):
    run = run_tables(sampling={"max_new_tokens": 16})
    record = RunRecord.create(folder, run=run, seeds={"run": 0})
    for step in range(12):
        line = {key: value if isinstance(value, float) else value[step] for key, value in values.items()}
        record.step(step, {key: Mean.of(value) for key, value in line.items()})
    if ended:
        record.stop("enough")
        record.close()
    return record


@pytest.mark.parametrize(
    ("values", "words", "code"),
    [
        (FINE, [], 0),
        (LONGER, [], 0),
        (LONGER, ["--fail-on", "warning"], 1),
        (CUT, [], 3),
        (CUT, ["--fail-on", "warning"], 3),
    ],
)
def test_the_exit_code_tells_the_gravest_finding(tmp_path, capsys, values, words, code):
    recorded(tmp_path / "run", values)
    assert main(["doctor", str(tmp_path / "run"), *words]) == code
    capsys.readouterr()


def test_the_verdict_stands_first_in_plain_words(tmp_path, capsys):
    recorded(tmp_path / "run", CUT)
    main(["doctor", str(tmp_path / "run")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("This run is sick: 97% of the answers are cut off at the limit.")
    assert "sampling.max_new_tokens = 64 (now 16)" in lines[0]
    assert lines[1] == "run: grpo, 12 steps"
    body = "\n".join(lines)
    assert "CRITICAL  truncation" in body
    assert "length/truncated 0.97 at the start, 0.97 now (steps 9 to 11)" in body
    assert "1. max-length-too-short" in body


def test_skipped_rules_are_one_line_with_what_they_miss(tmp_path, capsys):
    recorded(tmp_path / "run", FINE)
    main(["doctor", str(tmp_path / "run")])
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("Nothing wrong was found")
    assert out[-1].startswith("Could not look: ")
    assert "sampler-mismatch (mismatch/logprob)" in out[-1]


def test_json_has_every_rule(tmp_path, capsys):
    recorded(tmp_path / "run", CUT)
    main(["doctor", str(tmp_path / "run"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["worst"] == "critical"
    assert told["step"] == 11
    found = next(one for one in told["findings"] if one["rule"] == "truncation")
    assert found["causes"][0]["name"] == "max-length-too-short"
    assert {one["outcome"] for one in told["findings"]} == {"found", "clear", "skipped"}


def test_saving_appends_what_is_new_and_nothing_twice(tmp_path, capsys):
    recorded(tmp_path / "run", CUT)
    folder = RunFolder(tmp_path / "run")
    assert not folder.findings.exists()
    main(["doctor", str(tmp_path / "run")])
    assert not folder.findings.exists(), "written only when asked"
    for _ in range(2):
        main(["doctor", str(tmp_path / "run"), "--save"])
    rules = [finding.rule for finding in RunReader(tmp_path / "run").findings()]
    assert "truncation" in rules
    assert len(rules) == len(set(rules))
    capsys.readouterr()


def test_a_running_run_is_diagnosed_and_not_written_to(tmp_path, capsys):
    record = recorded(tmp_path / "run", CUT, ended=False)
    assert main(["doctor", str(tmp_path / "run")]) == 3
    assert main(["doctor", str(tmp_path / "run"), "--save"]) == 2
    assert "still running" in capsys.readouterr().err
    record.close()


def test_what_is_no_run_is_told(tmp_path, capsys):
    assert main(["doctor", str(tmp_path)]) == 2
    assert "run.json" in capsys.readouterr().err


def test_findings_of_a_branch_that_was_given_up_do_not_count(tmp_path):
    from tests.doctor_cases import case_with
    from trimtab.doctor.diagnose import diagnose

    record = recorded(tmp_path / "run", CUT, ended=False)
    for finding in diagnose(case_with(CUT, steps=12)).found[:1]:
        record.finding(finding)
    record.close()
    assert len(RunReader(tmp_path / "run").findings()) == 1
    RunRecord.resume(tmp_path / "run", step=6, run=run_tables(), seeds={"run": 0}).close()
    assert RunReader(tmp_path / "run").findings() == []
