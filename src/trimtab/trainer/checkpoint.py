"""Checkpoints that are whole or not there.

    with new_checkpoint(folder, step) as side:       # folder/.step-000100.part
        await trainer.save(side)
        state.save(side)
                                                     # now folder/step-000100

Everything is written into a side folder, listed in a manifest with size and SHA-256, flushed to the
disk, and then renamed. A crash at any moment leaves the older checkpoints, the new one, or both, and
never half of one. A checkpoint that was damaged later is found by its manifest and passed over.
No pickle: tensors are safetensors, the rest is JSON.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trimtab.errors import RunError

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
NAME = re.compile(r"step-(\d+)(\.replaced)?")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint. ``passed_over`` says of newer ones why they cannot be used."""

    path: Path
    step: int
    passed_over: tuple[str, ...] = ()


@contextlib.contextmanager
def new_checkpoint(folder: Path, step: int) -> Iterator[Path]:
    """A side folder to write into; it becomes ``folder/step-000100`` when the block ends without error.

    A checkpoint of the same step is replaced. On an error the side folder goes and nothing else changes.
    """
    final = folder / f"step-{step:06d}"
    side = folder / f".{final.name}.part"
    shutil.rmtree(side, ignore_errors=True)
    side.mkdir(parents=True)
    try:
        yield side
        _write_manifest(side, step)
    except BaseException:
        shutil.rmtree(side, ignore_errors=True)
        raise
    replaced = folder / f"{final.name}.replaced"
    if final.exists():
        _remove(replaced)
        os.replace(final, replaced)  # still found by latest_checkpoint until the new one has its place
    os.replace(side, final)
    _flush(folder)
    _remove(replaced)


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest complete checkpoint, all its files checked; None where none was ever written.

    Raises: RunError when there are checkpoints and not one is complete.
    """
    passed_over: list[str] = []
    for path, step in _newest_first(folder):
        fault = find_fault(path)
        if fault is None:
            return Checkpoint(path, step, tuple(passed_over))
        passed_over.append(f"{path.name}: {fault}")
    if passed_over:
        raise RunError(
            f"{folder} holds no complete checkpoint ({'; '.join(passed_over)}); "
            "restore one from a copy, or start the run anew under another name"
        )
    return None


def find_fault(path: Path) -> str | None:
    """What differs between a checkpoint and its manifest; None when it is whole."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        listed: Mapping[str, Mapping[str, Any]] = manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{MANIFEST} is missing or cannot be read"
    for name, expected in listed.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {expected['bytes']}"
    changed = (name for name, expected in listed.items() if _digest(path / name) != expected["sha256"])
    name = next(changed, None)
    return None if name is None else f"the content of {name} has changed since it was written"


def prune(folder: Path, keep: int, *, protect: Collection[int] = ()) -> list[int]:
    """Delete all but the newest ``keep`` checkpoints and those of the steps ``protect``; steps deleted.

    Nothing is deleted unless one of the kept ones is complete when read back. Side folders that a crash
    left behind go too.
    """
    if keep < 1:
        raise ValueError(f"at least one checkpoint must be kept, got keep={keep}")
    present = [entry for entry in _newest_first(folder) if entry[1] not in protect]
    kept, old = present[:keep], present[keep:]
    if not any(find_fault(path) is None for path, _ in kept):
        return []
    for path, _ in old:
        _remove(path)
    for side in folder.glob(".step-*"):
        _remove(side)
    return [step for _, step in old]


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """These tensors as one safetensors file."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """What ``write_tensors`` wrote. Raises RunError when the file is missing or damaged."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({error}); resume from another checkpoint") from None


def copy_into(targets: Mapping[str, Tensor], stored: Mapping[str, Tensor], what: str) -> None:
    """Copy each stored tensor into the target of its name, in place.

    Raises: RunError when names or shapes differ.
    """
    if missing := sorted(targets.keys() ^ stored.keys()):
        raise RunError(
            f"the {what} of the checkpoint and of this run differ in {len(missing)} tensors, {missing[0]!r} "
            "among them; resume with the model it was written with"
        )
    for name, target in targets.items():
        if target.shape != stored[name].shape:
            raise RunError(
                f"the {what} of the checkpoint has {name!r} with shape {tuple(stored[name].shape)}, this run "
                f"with {tuple(target.shape)}; resume with the model it was written with"
            )
        target.copy_(stored[name])


def _newest_first(folder: Path) -> list[tuple[Path, int]]:
    found: list[tuple[int, bool, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match[1]), match[2] is None, path))
    return [(path, step) for step, _, path in sorted(found, reverse=True)]


def _write_manifest(side: Path, step: int) -> None:
    """Flush every file, then list them; the manifest comes last, so that it vouches for what is there."""
    files = sorted(path for path in side.rglob("*") if path.is_file())
    listed: dict[str, Any] = {}
    for file in files:
        _flush(file)
        listed[file.relative_to(side).as_posix()] = {"bytes": file.stat().st_size, "sha256": _digest(file)}
    manifest = {"version": MANIFEST_VERSION, "step": step, "files": listed}
    (side / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _flush(side / MANIFEST)
    for below in [*(path for path in side.rglob("*") if path.is_dir()), side]:
        _flush(below)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Delete a folder under a name that no reader takes for a checkpoint."""
    if not path.exists():
        return
    doomed = path if path.name.startswith(".") else path.with_name(f".{path.name}.deleted")
    if doomed != path:
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
