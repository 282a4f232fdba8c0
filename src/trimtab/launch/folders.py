"""Run folders as the commands find them: finished, to be resumed, with or without a checkpoint."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from trimtab.config import Run
from trimtab.errors import RunError
from trimtab.record.layout import RunFolder
from trimtab.trainer.checkpoint import latest_checkpoint


def export(folder: Path, *, step: int | None, to: Path) -> Path:
    """Copy the model of a checkpoint to ``to``, as a folder that transformers loads."""
    source = model_folder(folder, step)
    if to.exists():
        raise RunError(f"{to} exists already; export writes a new folder")
    shutil.copytree(source, to)
    return to


def finished(run: Run, folder: Path, *, resume: bool) -> dict[str, Any] | None:
    """The summary of a run that has nothing left to do; None where there is something to do.

    Raises RunError where a new run would land on an old one, or fewer steps are asked than were done.
    """
    there = RunFolder(folder)
    if not resume:
        if there.run.exists() or there.checkpoint_steps():
            raise RunError(f"{folder} already holds a run; resume it, or give the new run another folder")
        return None
    if not there.summary.exists():
        return None
    summary: dict[str, Any] = json.loads(there.summary.read_text(encoding="utf-8"))
    refuse_fewer_steps(run, folder, summary["steps"])
    return summary if summary["steps"] == run.run.steps else None


def refuse_fewer_steps(run: Run, folder: Path, done: int) -> None:
    """Raises RunError where more steps are done than the run asks for."""
    if done > run.run.steps:
        raise RunError(
            f"{folder} has done {done} steps already, run.steps = {run.run.steps} asks for fewer; "
            f"set run.steps = {done} or more, or start a new run"
        )


def model_folder(folder: Path, step: int | None) -> Path:
    """The model of the checkpoint of ``step``; of the newest one where that is None."""
    run_folder = RunFolder(folder)
    if step is not None:
        path = run_folder.checkpoint_of(step)
        if not path.is_dir():
            known = ", ".join(map(str, run_folder.checkpoint_steps())) or "none"
            raise RunError(f"{folder} has no checkpoint of step {step} (it has: {known})")
        return path / "model"
    newest = latest_checkpoint(run_folder.checkpoints)
    if newest is None:
        raise RunError(f"{folder} has no checkpoint yet; the first comes after record.checkpoint_every steps")
    return newest.path / "model"
