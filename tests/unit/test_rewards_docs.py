"""docs/rewards.md: its graders are those there are, and its recipes build."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from trimtab.rewards.build import GRADERS, build_grader
from trimtab.rewards.rubric import GraderConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")


def test_every_grader_is_in_the_table():
    named = re.findall(r"^\| `([a-z-]+)` \| .* \|$", TEXT.split("## Format")[0], re.M)
    assert sorted(named) == sorted(GRADERS)


def test_every_grader_that_is_shown_can_be_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answer.schema.json").write_text("{}")
    shown = re.findall(r"^ *(\{ name = .*\})(?:,.*)?$", TEXT, re.M)
    assert len(shown) > 8
    for table in shown:
        grader = build_grader(GraderConfig(**tomllib.loads(f"grader = {table}")["grader"]))
        assert grader.name in GRADERS
