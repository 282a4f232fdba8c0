"""Run folders as the commands find them: finished, to be resumed, with or without a checkpoint."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.config import Run, run_from_dict
from trimtab.errors import RunError
from trimtab.models import export_model, load_model
from trimtab.models.adapter_files import merge_adapter
from trimtab.models.lora import fingerprint
from trimtab.record.layout import RunFolder
from trimtab.trainer.checkpoint import latest_checkpoint

ADAPTER = "adapter"


def export(folder: Path, *, step: int | None, to: Path) -> Path:
    """Write the model of a checkpoint to ``to``, as a folder that transformers loads; of a run that trains
    adapters with these in its weights, and ``to/adapter`` as a folder that peft loads.
    """
    checkpoint = checkpoint_folder(folder, step)
    if to.exists():
        raise RunError(f"{to} exists already; export writes a new folder")
    if not (checkpoint / ADAPTER).is_dir():
        shutil.copytree(checkpoint / "model", to)
        return to
    _write_merged(folder, checkpoint, to)
    shutil.copytree(checkpoint / ADAPTER, to / ADAPTER)
    return to


@contextlib.contextmanager
def model_folder(folder: Path, step: int | None) -> Iterator[Path]:
    """The model of the checkpoint of ``step`` (None: of the newest); adapters are merged into a folder that
    is there as long as the block runs.
    """
    checkpoint = checkpoint_folder(folder, step)
    if not (checkpoint / ADAPTER).is_dir():
        yield checkpoint / "model"
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-") as aside:
        yield _write_merged(folder, checkpoint, Path(aside) / checkpoint.name)


def _write_merged(folder: Path, checkpoint: Path, to: Path) -> Path:
    """Load the base of a run anew, put a checkpoint's adapters into its weights, and write it to ``to``.

    Raises: RunError when the base is not the one that they were trained on.
    """
    run = run_from_dict(json.loads(RunFolder(folder).run.read_text(encoding="utf-8"))["run"])
    try:
        stored = json.loads((checkpoint / "trainer" / "trainer.json").read_text(encoding="utf-8"))
        base, dtype = stored["adapters"]["base"], stored["adapters"]["dtype"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{checkpoint} does not say what its adapters lie on ({error})") from None
    model = load_model(run.model.path, device="cpu", dtype=dtype)
    if fingerprint(model.module) != base:
        raise RunError(
            f"the model {run.model.path} is not the one that the adapters of {checkpoint} were trained on; "
            "put the old weights back"
        )
    merge_adapter(model.module, checkpoint / ADAPTER)
    export_model(model.module, model.tokenizer, to)
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


def checkpoint_folder(folder: Path, step: int | None) -> Path:
    """The checkpoint of ``step``; the newest one where that is None."""
    run_folder = RunFolder(folder)
    if step is not None:
        path = run_folder.checkpoint_of(step)
        if not path.is_dir():
            known = ", ".join(map(str, run_folder.checkpoint_steps())) or "none"
            raise RunError(f"{folder} has no checkpoint of step {step} (it has: {known})")
        return path
    newest = latest_checkpoint(run_folder.checkpoints)
    if newest is None:
        raise RunError(f"{folder} has no checkpoint yet; the first comes after record.checkpoint_every steps")
    return newest.path
