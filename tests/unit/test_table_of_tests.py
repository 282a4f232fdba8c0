"""The table of docs/tests.md: which row a test is counted in, and what it is not written for."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import script

SUITE = """<testsuites><testsuite>
<testcase classname="tests.contract.test_engines" name="test_a[vllm]" time="2.0"/>
<testcase classname="tests.contract.test_engines" name="test_a[local]" time="0.5"/>
<testcase classname="tests.contract.test_local_engine_fast" name="test_b" time="0.25"/>
<testcase classname="tests.contract.test_trainers_critic" name="test_c[head-sharded over 2]" time="1.0"/>
<testcase classname="tests.contract.test_trainers" name="test_d[ray over 2]" time="4.0"/>
<testcase classname="tests.contract.test_nccl_gpu" name="test_e" time="0.0"><skipped/></testcase>
<testcase classname="tests.faults.test_cluster_engines" name="test_the_contract_of_every_engine" time="1.5"/>
<testcase classname="tests.faults.test_watchdog" name="test_f" time="3.0"/>
<testcase classname="tests.contract.test_trainers_lora" name="test_ten_updates_of_a[policy-2]" time="5.0"/>
<testcase classname="tests.unit.test_cli" name="test_g[x]" time="0.125"/>
{more}</testsuite></testsuites>"""


def written(folder: Path, more: str = "") -> Path:
    file = folder / "tests.xml"
    file.write_text(SUITE.format(more=more))
    return file


def test_every_test_is_counted_in_one_row(tmp_path: Path):
    table = script("test_table")
    assert table.table(table.read(written(tmp_path)))[2:] == [
        "| engine | built-in | 2 | 2 | 0 | 0.8 |",
        "| engine | vLLM | 1 | 1 | 0 | 2.0 |",
        "| engine | pool of engines (Ray) | 1 | 1 | 0 | 1.5 |",
        "| trainer | FSDP2, 2 ranks | 1 | 1 | 0 | 1.0 |",
        "| trainer | FSDP2, 2 ranks as actors of Ray | 1 | 1 | 0 | 4.0 |",
        "| trainer | FSDP2 against one process, 1 to 3 ranks | 1 | 1 | 0 | 5.0 |",
        "| trainer | FSDP2 and NCCL on GPUs | 1 | 0 | 1 | 0.0 |",
        f"| fault | {script('test_table').first_sentence('faults.test_watchdog')} | 1 | 1 | 0 | 3.0 |",
        "| other | `tests/unit` | 1 | 1 | 0 | 0.1 |",
        "| all |  | 10 | 9 | 1 | 17.4 |",
    ]


@pytest.mark.parametrize("kind", ["failure", "error"])
def test_a_suite_that_fails_has_no_table(tmp_path: Path, kind: str):
    table = script("test_table")
    failed = f'<testcase classname="tests.unit.test_cli" name="test_h"><{kind} message="no"/></testcase>'
    with pytest.raises(SystemExit, match="1 tests failed, unit.test_cli::test_h among them"):
        table.table(table.read(written(tmp_path, failed)))


def test_it_is_written_between_the_marks_alone(tmp_path: Path):
    table, page = script("test_table"), tmp_path / "page.md"
    page.write_text(f"before\n{table.START}\nold\n{table.END}\nafter\n")
    table.write_between(page, ["new"])
    assert page.read_text() == f"before\n{table.START}\nnew\n{table.END}\nafter\n"
    with pytest.raises(SystemExit, match="0 places"):
        table.write_between(written(tmp_path), ["new"])
    assert table.PAGE.read_text(encoding="utf-8").count(table.START) == 1
