"""scripts/gpu_check.py: a tiny model passes, a wrong number does not; on a GPU the large one passes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.unit.test_fused_logprobs import stand_in

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("gpu_check")


def run(check: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *arguments])
    return check.main()


def test_a_tiny_model_passes_and_both_tables_are_printed(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "check.json"
    assert run(check, monkeypatch, "--tiny", "--json", str(path)) == 0
    told = json.loads(path.read_text())
    assert all(one["good"] for one in told["checks"])
    names = " ".join(one["name"] for one in told["checks"])
    for part in (
        "chunks",
        "sampler and trainer",
        "prompt once a group",
        "attention",
        "autocast",
        "bfloat16 trainer",
    ):
        assert part in names
    shown = capsys.readouterr().out
    assert "| sampling, bfloat16" in shown
    assert "| update, autocast" in shown
    assert "WRONG" not in shown


def test_wrong_log_probabilities_end_with_1(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    numerics = sys.modules["gpu_numerics"]
    right: Any = numerics.logprobs_and_entropy

    def wrong(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, entropy = right(*args, **kwargs)
        return logprobs * 1.01, entropy

    monkeypatch.setattr(numerics, "logprobs_and_entropy", wrong)
    monkeypatch.setattr(check, "speed_rows", lambda *_: ())
    assert run(check, monkeypatch, "--tiny") == 1
    assert "**WRONG**" in capsys.readouterr().out


def test_the_fused_kernel_is_checked_where_it_is_installed(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    calls = stand_in(monkeypatch)
    numerics = sys.modules["gpu_numerics"]
    monkeypatch.setattr(numerics, "installed", lambda name, _: name == numerics.FUSED)
    model = check.random_model(check.TINY, torch.device("cpu"))
    found = [one for one in numerics.numerics(model, check.SIZES["tiny"]) if numerics.FUSED in one.name]
    assert len(found) == 4
    assert all(one.good and one.value > 0 for one in found)
    assert len(calls) > 1


def test_a_number_that_is_none_is_wrong(check: ModuleType):
    assert not check.Check("of nothing", float("nan"), 1.0).good
    assert check.Check("at the limit", 1.0, 1.0).good


@pytest.mark.gpu
def test_the_large_model_passes_on_a_gpu(check: ModuleType, monkeypatch: pytest.MonkeyPatch):
    assert run(check, monkeypatch) == 0
