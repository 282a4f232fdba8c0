"""Writes the table of all tests, by engine, trainer and fault, with counts and times, into docs/tests.md.

python scripts/test_table.py                  runs every test first, as `make test` does
python scripts/test_table.py --junit FILE     reads what pytest --junitxml=FILE has written
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tests.md"
START, END = "<!-- scripts/test_table.py writes from here -->", "<!-- to here -->"

CONTRACTS = {
    "engine": {
        "built-in": r"contract\.test_(local_engine\w*|pretrained_model)::|contract\.test_engines::.*\[local",
        "scripted, for tests of the loop": r"contract\.test_engines::.*\[scripted",
        "vLLM": r"contract\.test_vllm_\w+::|contract\.test_engines::.*\[vllm",
        "pool of engines (Ray)": r"faults\.test_cluster_engines::test_the_contract_of_every_engine",
        "real models, without an engine's fixture": r"contract\.test_engines::",
    },
    "trainer": {
        "one process": r"contract\.test_trainers\w*::.*\[(.*-)?local",
        "FSDP2, 1 rank": r"contract\.test_trainers\w*::.*\[(.*-)?sharded over 1",
        "FSDP2, 2 ranks": r"contract\.test_trainers\w*::.*\[(.*-)?sharded over 2",
        "FSDP2, 2 ranks as actors of Ray": r"contract\.test_trainers\w*::.*\[(.*-)?ray over 2",
        "FSDP2 against one process, 1 to 3 ranks": r"contract\.test_sharded_(updates|state)::"
        r"|contract\.test_trainers_lora::test_(ten_updates|any_number|ranks_write|each_rank)_",
        "FSDP2 and NCCL on GPUs": r"contract\.test_(sharded|nccl)_gpu::",
        "all kinds": r"contract\.test_trainers\w*::",
    },
}
"""Group -> row -> which tests it counts; a test belongs to the first row that fits."""


class Case(NamedTuple):
    """One test: "faults.test_resume::test_name[parameters]", its seconds, "passed", "skipped" or "failed"."""

    name: str
    seconds: float
    outcome: str


def main() -> None:
    """Read or run the tests, print the table and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="of a run of the whole suite")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write it")
    words = parser.parse_args()
    lines = table(read(words.junit) if words.junit else run())
    print("\n".join(lines))
    write_between(words.page, lines)


def run() -> list[Case]:
    """Run every test of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.xml"
        subprocess.run([sys.executable, "-m", "pytest", "-q", f"--junitxml={file}"], cwd=ROOT, check=False)
        return read(file)


def read(file: Path) -> list[Case]:
    """The tests of a JUnit file."""
    return [_case(one) for one in ElementTree.parse(file).iter("testcase")]


def _case(one: ElementTree.Element) -> Case:
    tags = {child.tag for child in one}
    outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
    name = f"{one.get('classname', '').removeprefix('tests.')}::{one.get('name', '')}"
    return Case(name, float(one.get("time", "0")), outcome)


def table(cases: list[Case]) -> list[str]:
    """Markdown. Raises SystemExit where a test has failed: the page shows what holds."""
    failed = [case.name for case in cases if case.outcome == "failed"]
    if failed:
        raise SystemExit(f"{len(failed)} tests failed, {failed[0]} among them; the table is not written")
    lines = ["| | | tests | passed | skipped | seconds |", "|---|---|---|---|---|---|"]
    rest = list(cases)
    for group, rows in CONTRACTS.items():
        for row, pattern in rows.items():
            mine = [case for case in rest if re.match(pattern, case.name)]
            rest = [case for case in rest if case not in mine]
            lines += _line(group, row, mine)
    for module in sorted({_module(case) for case in rest if case.name.startswith("faults.")}):
        lines += _line("fault", first_sentence(module), [case for case in rest if _module(case) == module])
    rest = [case for case in rest if not case.name.startswith("faults.")]
    for folder in sorted({case.name.split(".")[0] for case in rest}):
        lines += _line("other", f"`tests/{folder}`", [c for c in rest if c.name.split(".")[0] == folder])
    return [*lines, *_line("all", "", cases)]


def _module(case: Case) -> str:
    return case.name.partition("::")[0]


def _line(group: str, row: str, cases: Iterable[Case]) -> list[str]:
    """The row of these tests, none where there are none."""
    found = list(cases)
    if not found:
        return []
    counts = [sum(case.outcome == kind for case in found) for kind in ("passed", "skipped")]
    seconds = sum(case.seconds for case in found)
    return [f"| {group} | {row} | {len(found)} | {counts[0]} | {counts[1]} | {seconds:.1f} |"]


def first_sentence(module: str) -> str:
    """What a test module says of itself in its first line."""
    path = ROOT / "tests" / (module.replace(".", "/") + ".py")
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.name
    return said.splitlines()[0].rstrip(".")


def write_between(page: Path, lines: list[str]) -> None:
    """Replace what stands between the marks. Raises SystemExit where they are not there once."""
    pattern, text = f"{START}.*?{END}", page.read_text(encoding="utf-8")
    text, count = re.subn(pattern, lambda _: "\n".join([START, *lines, END]), text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has {count} places between {START} and {END}; it needs one")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
