"""A crash at any moment of saving, or damage afterwards, never leaves a run without its checkpoint."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from trimtab.errors import RunError
from trimtab.trainer import checkpoint as checkpoints
from trimtab.trainer.checkpoint import (
    copy_into,
    find_fault,
    latest_checkpoint,
    new_checkpoint,
    prune,
    read_tensors,
    write_tensors,
)


def write(folder: Path, step: int, content: int) -> None:
    with new_checkpoint(folder, step) as side:
        write_tensors(side / "weights.safetensors", {"w": torch.full((64,), content)})
        (side / "loop").mkdir()
        (side / "loop" / "loop.json").write_text(json.dumps({"content": content}))


def read(path: Path) -> int:
    content = json.loads((path / "loop" / "loop.json").read_text())["content"]
    assert torch.equal(read_tensors(path / "weights.safetensors")["w"], torch.full((64,), content))
    return content


def newest(folder: Path) -> tuple[int, int]:
    found = latest_checkpoint(folder)
    assert found is not None
    return found.step, read(found.path)


def test_the_newest_complete_checkpoint_is_found(tmp_path):
    assert latest_checkpoint(tmp_path / "nowhere") is None
    for step in (1, 20, 3):
        write(tmp_path, step, step)
    assert newest(tmp_path) == (20, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000003", "step-000020"]


class Crash(BaseException):
    """The process is gone: nothing that follows is carried out, clean-up included."""


def crash_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[int]:
    """Every file operation counts; the one after ``calls`` and all later ones never happen."""
    count = [0]

    def guarded(real):
        def call(*args, **kwargs):
            count[0] += 1
            if count[0] > calls:
                raise Crash
            return real(*args, **kwargs)

        return call

    for module, name in (
        (os, "replace"),
        (os, "fsync"),
        (shutil, "rmtree"),
        (checkpoints, "save_file"),
        (Path, "mkdir"),
        (Path, "write_text"),
    ):
        monkeypatch.setattr(module, name, guarded(getattr(module, name)))
    return count


@pytest.mark.parametrize("step", [7, 8])
def test_a_crash_at_any_moment_leaves_the_old_or_the_new_checkpoint(tmp_path, step):
    """Step 8 is a new checkpoint beside step 7, step 7 again replaces it."""
    seen = set()
    for calls in range(100):
        folder = tmp_path / f"crash-{calls}"
        write(folder, 7, content=1)
        with pytest.MonkeyPatch.context() as patch:
            crash_after(patch, calls)
            try:
                write(folder, step, content=2)
                survived = True
            except Crash:
                survived = False
        found = newest(folder)
        assert found in {(7, 1), (step, 2)}
        seen.add(found[1])
        prune(folder, keep=2)
        assert newest(folder) == found
        assert not list(folder.glob(".*")), "what the crash left behind is cleared away"
        write(folder, step, content=3)
        assert newest(folder) == (step, 3)
        if survived:
            break
    assert survived
    assert calls > 8
    assert seen == {1, 2}


def keep_writing(folder: Path) -> None:
    for content in range(10_000):
        write(folder, content // 2, content)


def test_kill_while_saving(tmp_path):
    context = multiprocessing.get_context("fork")
    moments = random.Random(0)
    for kill in range(6):
        folder = tmp_path / str(kill)
        child = context.Process(target=keep_writing, args=(folder,))
        child.start()
        while not list(folder.glob("step-*")):
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.08))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        step, content = newest(folder)
        assert content // 2 == step


def test_an_error_while_writing_changes_nothing(tmp_path):
    write(tmp_path, 1, 1)

    def fail() -> None:
        with new_checkpoint(tmp_path, 2) as side:
            (side / "half").write_text("x")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def damage_nothing_listed(path: Path) -> None:
    (path / "note.txt").write_text("a file the manifest does not list is no fault")


def truncate(path: Path) -> None:
    os.truncate(path / "weights.safetensors", 100)


def flip(path: Path) -> None:
    file = path / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def lose(path: Path) -> None:
    (path / "loop" / "loop.json").unlink()


def unlist(path: Path) -> None:
    (path / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "weights.safetensors has 100 bytes, not"),
        (flip, "content of weights.safetensors has changed"),
        (lose, "loop/loop.json is missing"),
        (unlist, "manifest.json is missing"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_its_reason(tmp_path, damage, reason):
    write(tmp_path, 1, 1)
    write(tmp_path, 2, 2)
    damage_nothing_listed(tmp_path / "step-000002")
    assert newest(tmp_path) == (2, 2)
    damage(tmp_path / "step-000002")
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(found.passed_over) == 1
    assert found.passed_over[0].startswith("step-000002: ")
    assert reason in found.passed_over[0]
    damage(tmp_path / "step-000001")
    with pytest.raises(RunError, match="no complete checkpoint"):
        latest_checkpoint(tmp_path)


def test_pruning_keeps_the_newest_and_the_protected(tmp_path):
    for step in range(1, 7):
        write(tmp_path, step, step)
    assert prune(tmp_path, keep=2, protect={1}) == [4, 3, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000005", "step-000006"]


def test_pruning_never_deletes_the_only_good_checkpoint(tmp_path):
    write(tmp_path, 1, 1)
    write(tmp_path, 2, 2)
    flip(tmp_path / "step-000002")
    assert prune(tmp_path, keep=1) == []
    assert newest(tmp_path) == (1, 1)
    with pytest.raises(ValueError, match="at least one"):
        prune(tmp_path, keep=0)


def test_tensors_go_into_the_targets_of_their_names(tmp_path):
    write_tensors(tmp_path / "t", {"a": torch.arange(6).view(2, 3).T, "b": torch.zeros(2)})
    stored = read_tensors(tmp_path / "t")
    target = {"a": torch.zeros(3, 2, dtype=torch.int64), "b": torch.ones(2)}
    copy_into(target, stored, "weights")
    assert torch.equal(target["a"], torch.arange(6).view(2, 3).T)
    with pytest.raises(RunError, match="differ in 1 tensors, 'b'"):
        copy_into({"a": target["a"]}, stored, "weights")
    with pytest.raises(RunError, match="shape"):
        copy_into({**target, "b": torch.zeros(3)}, stored, "weights")
    (tmp_path / "t").write_bytes(b"no tensors")
    with pytest.raises(RunError, match="cannot be read"):
        read_tensors(tmp_path / "t")


def test_a_whole_checkpoint_has_no_fault(tmp_path):
    write(tmp_path, 1, 1)
    assert find_fault(tmp_path / "step-000001") is None
