"""What every test relies on: one thread, no network, and skips that say why.

NO_SKIPS=1 turns every skip into a failure, except of tests marked ``gpu``: a machine without a GPU
is normal, a machine on which another test cannot run is not finished.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: tiny tensors lose time to more threads
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

NO_SKIPS = os.environ.get("NO_SKIPS", "") not in ("", "0")


def cuda_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


NEEDS = {
    "gpu": (cuda_is_there, "no CUDA device"),
    "ray": (lambda: importlib.util.find_spec("ray") is not None, "the package ray is not installed"),
    "kernels": (
        lambda: importlib.util.find_spec("cut_cross_entropy") is not None,
        "the package cut-cross-entropy is not installed",
    ),
    "vllm": (lambda: importlib.util.find_spec("vllm") is not None, "the package vllm is not installed"),
    "net": (lambda: os.environ.get("TRIMTAB_NET") == "1", "TRIMTAB_NET=1 is not set"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run; each need is looked up once and only if a test asks."""
    for marker, (met, reason) in NEEDS.items():
        asking = [item for item in items if item.get_closest_marker(marker)]
        if asking and not met():
            for item in asking:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("gpu"):
        fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if NO_SKIPS and report.skipped:
        fail(report)
    return report


def fail(report: Any) -> None:
    """A skipped report becomes a failed one that keeps the reason."""
    path, line, reason = report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{path}:{line}: {reason} (NO_SKIPS is set, so a skip is a failure)"
