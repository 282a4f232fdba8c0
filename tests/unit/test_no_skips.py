"""The switch NO_SKIPS: a skip fails, a GPU skip and an expected failure do not."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

def test_passes(): pass
def test_skips(): pytest.skip("no compiler")
@pytest.mark.skipif(True, reason="no browser")
def test_is_skipped(): pass
@pytest.mark.gpu
def test_on_gpu(): pass
@pytest.mark.xfail(reason="known", strict=True)
def test_known(): assert False
"""
MODULE = 'import pytest\npytest.importorskip("no_such_package_at_all")\n'


def outcome(folder: Path, no_skips: str) -> tuple[dict[str, int], str]:
    """(counts by outcome, whole output) of a small suite under this conftest, on a machine without a GPU."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text(MODULE)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    gpu: x\n    ray: x\n    vllm: x\n    net: x\n"
    )
    environment = {**os.environ, "NO_SKIPS": no_skips, "CUDA_VISIBLE_DEVICES": ""}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    counts = re.findall(r"(\d+) (passed|failed|skipped|xfailed|errors?)", done.stdout.splitlines()[-1])
    return {name: int(count) for count, name in counts}, done.stdout


def test_without_the_switch_skips_are_told_with_their_reasons(tmp_path: Path):
    counts, out = outcome(tmp_path, "0")
    assert counts == {"passed": 1, "skipped": 4, "xfailed": 1}
    for reason in ("no compiler", "no browser", "no CUDA device", "no_such_package_at_all"):
        assert reason in out


def test_with_the_switch_only_gpu_skips_remain(tmp_path: Path):
    counts, out = outcome(tmp_path, "1")
    assert counts == {"passed": 1, "skipped": 1, "xfailed": 1, "failed": 1, "errors": 2}
    assert "no compiler (NO_SKIPS is set, so a skip is a failure)" in out
