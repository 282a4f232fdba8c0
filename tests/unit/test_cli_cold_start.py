"""The command cold-start: its settings and its folder. What it learns is tested with the loop."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.cli import main


def test_cold_start_settings_are_checked_like_a_recipe(capsys: pytest.CaptureFixture[str]):
    for words, sentence in (
        (["cold.updats=3"], "did you mean cold.updates?"),
        (["trainer.epochs=3"], "unknown table trainer"),
        (["cold.task=sums", "cold.demonstrations=y"], "and not both"),
    ):
        assert main(["cold-start", "--to", "never-made", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert not Path("never-made").exists()


def test_cold_start_writes_a_model_and_refuses_to_write_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    small = [
        "cold.fresh.width=16",
        "cold.fresh.layers=1",
        "cold.updates=2",
        "cold.batch=2",
        "cold.measured=0",
    ]
    assert main(["cold-start", "--to", str(tmp_path / "model"), *small]) == 0
    out = capsys.readouterr().out
    assert "update 2/2  loss " in out
    assert (tmp_path / "model" / "config.json").exists()
    assert main(["cold-start", "--to", str(tmp_path / "model"), *small]) == 2
    assert "is already there" in capsys.readouterr().err
