"""What a run stood on: versions, commits, hardware, memory. Every lookup that fails is left out."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("trimtab", "torch", "transformers", "tokenizers", "numpy", "safetensors", "pyarrow", "pydantic")


def versions() -> dict[str, str]:
    """Python and the packages that decide numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commits() -> dict[str, dict[str, Any]]:
    """Git commit of trimtab's own code and of the working directory, where they are in a repository."""
    places = {"trimtab": Path(__file__).parent, "directory": Path.cwd()}
    found = {name: _commit(place) for name, place in places.items()}
    return {name: commit for name, commit in found.items() if commit is not None}


def _commit(place: Path) -> dict[str, Any] | None:
    head = _git(place, "rev-parse", "HEAD")
    if not head:
        return None
    return {"commit": head, "changed": bool(_git(place, "status", "--porcelain", "--untracked-files=no"))}


def _git(place: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def hardware() -> dict[str, Any]:
    """System, processor, cores, threads, memory, accelerators."""
    found: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    if torch.cuda.is_available():
        found["accelerators"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return found


def _processor() -> str:
    try:
        for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if text.startswith("model name"):
                return text.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def resident_bytes() -> int | None:
    """Main memory this process holds now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most main memory this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_peak_bytes() -> int | None:
    """The most accelerator memory allocated so far; None without an accelerator."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
