"""Which runs there are, and the ones that are open. Memory is bounded: the run used longest ago is closed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trimtab.errors import DataError
from trimtab.record.events import BEGINS, ENDS
from trimtab.record.layout import RunFolder
from trimtab.record.reader import RunReader, Status, status_of

if TYPE_CHECKING:
    from trimtab.record.rows import RolloutRow

DEPTH = 3
"""Folders below the root in which runs are looked for."""

MOST_VALUES = 20_000_000
"""Metric values that stay in memory, over all open runs: 16 bytes each. At least one run stays open."""

MOST_RUNS = 32
"""Runs that stay open, however small."""

ROLLOUT_FILES = 3
"""Steps of a run whose rollouts stay in memory."""

FRESH_SECONDS = 0.5
"""A run is read on at most this often."""

TAIL_BYTES = 1 << 16

LONG_BYTES = 8 << 20
"""A record with more metrics than this is shown from ``GLIMPSE`` of its lines until all are read."""

GLIMPSE = 400

HEAD_START = 0.5
"""Seconds in which a first look is shown before the whole record is read beside it."""


class Glance(NamedTuple):
    """A run as the list of runs shows it, without reading its history."""

    id: str
    folder: RunFolder
    run: dict[str, Any]
    last_step: int | None
    last_metrics: dict[str, float]
    status: Status


class OpenRun:
    """One run being looked at. Every use holds ``lock``; one that looks long holds ``still`` instead, which
    lets others look too and puts off the next ``refresh``.

    whole: whether all of the record has been read, and not only a glimpse.
    """

    def __init__(self, identity: str, path: Path) -> None:
        self.id = identity
        self.lock = threading.RLock()
        self.still = threading.Lock()
        self._path = path
        self._reader: RunReader | None = None
        self._rest: Future[RunReader] | None = None
        self._hurry = threading.Event()
        self._read = 0.0
        self._rollouts: OrderedDict[int, tuple[int, list[RolloutRow]]] = OrderedDict()
        self.kept: dict[str, Any] = {}
        """What a view has computed of this run and completes later, by the view's name."""

    @property
    def reader(self) -> RunReader:
        """The record as it was at the last ``refresh``."""
        assert self._reader is not None, "a run is refreshed before it is looked at"
        return self._reader

    @property
    def values(self) -> int:
        """Metric values in memory."""
        return 0 if self._reader is None else self._reader.history.size

    @property
    def whole(self) -> bool:
        return self._rest is None

    def refresh(self, *, whole: bool) -> None:
        """Read what was added. Of a long record, at first and unless ``whole`` is wanted, only a glimpse;
        another thread then reads all of it.
        """
        if self._reader is None:
            if whole or not _is_long(self._path):
                self._reader = RunReader(self._path)
            else:
                self._reader = RunReader(self._path, glimpse=GLIMPSE)
                self._rest = _READING.submit(self._read_whole)
        elif self._rest is not None:
            if not whole and not self._rest.done():
                return
            self._reader, self._rest = self._rest.result(), None
        elif time.monotonic() - self._read >= FRESH_SECONDS and self.still.acquire(blocking=False):
            try:
                self._reader.refresh()
            finally:
                self.still.release()
        else:
            return
        self._read = time.monotonic()

    def wait(self) -> None:
        """Until the thread that reads the whole record is done, where one does; without the lock."""
        if (rest := self._rest) is not None:
            self._hurry.set()
            rest.exception()

    def _read_whole(self) -> RunReader:
        self._hurry.wait(HEAD_START)
        return RunReader(self._path)

    def rollouts(self, step: int) -> list[RolloutRow]:
        """The rollouts of a step, kept while few others are asked for. Raises DataError where none are."""
        path = self.reader.folder.rollouts_of(step)
        written = path.stat().st_mtime_ns if path.exists() else 0
        held = self._rollouts.pop(step, None)
        rows = held[1] if held is not None and held[0] == written else self.reader.rollouts(step)
        self._rollouts[step] = (written, rows)
        while len(self._rollouts) > ROLLOUT_FILES:
            self._rollouts.popitem(last=False)
        return rows


class RunStore:
    """The runs in and below a folder, each named by its path from there.

    Raises DataError where the folder is not there.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(f"{root} is no folder; give the folder that holds runs, or one run's own")
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._open: OrderedDict[str, OpenRun] = OrderedDict()

    def ids(self) -> list[str]:
        """Names of all runs, newest first."""
        found = {self._name(path): (path / "run.json").stat().st_mtime for path in _runs(self.root, DEPTH)}
        return sorted(found, key=lambda name: found[name], reverse=True)

    def glances(self) -> Iterator[Glance]:
        """Every run at a glance; one that cannot be read is left out."""
        for name in self.ids():
            folder = RunFolder(self._path(name))
            try:
                run = _object(folder.run.read_bytes())
            except OSError:
                continue
            metrics = _last(folder.metrics, frozenset())
            ended = status_of(folder, _last(folder.events, ENDS | BEGINS) or None)
            step, values = metrics.get("step"), metrics.get("metrics")
            yield Glance(
                name,
                folder,
                run,
                step if isinstance(step, int) else None,
                values if isinstance(values, dict) else {},
                ended,
            )

    def open(self, name: str, *, whole: bool = True) -> OpenRun:
        """The run of that name, opened where it is not; ``whole`` or perhaps a first look at it.

        Raises DataError where there is none.
        """
        if name not in self.ids():
            raise DataError(f"there is no run {name!r} in {self.root}")
        with self._lock:
            run = self._open.pop(name, None)
            if run is None:
                run = OpenRun(name, self._path(name))
            self._open[name] = run
        if whole:
            run.wait()
        try:
            with run.lock:  # of this run alone: a long read keeps nobody from the others
                run.refresh(whole=whole)
        except Exception:
            with self._lock:
                self._open.pop(name, None)
            raise
        self._close_some()
        return run

    def _close_some(self) -> None:
        with self._lock:
            held = sum(run.values for run in self._open.values())
            while len(self._open) > 1 and (held > MOST_VALUES or len(self._open) > MOST_RUNS):
                _, closed = self._open.popitem(last=False)
                held -= closed.values

    def _name(self, path: Path) -> str:
        return path.name if path == self.root else path.relative_to(self.root).as_posix()

    def _path(self, name: str) -> Path:
        own = (self.root / "run.json").exists()
        return self.root if own and name == self.root.name else self.root / name


_READING = ThreadPoolExecutor(1, "reading")


def _is_long(path: Path) -> bool:
    metrics = RunFolder(path).metrics
    return metrics.exists() and metrics.stat().st_size > LONG_BYTES


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "run.json").is_file():
        yield folder
    elif depth:
        try:
            below = sorted(
                path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
            )
        except OSError:
            return
        for path in below:
            yield from _runs(path, depth - 1)


def _last(path: Path, names: frozenset[str]) -> dict[str, Any]:
    """The last complete line of a file, for events the last one of these names; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for text in reversed(lines):
        found = _object(text)
        if found and (not names or str(found.get("event")) in names):
            return found
    return {}


def _object(text: bytes) -> dict[str, Any]:
    """An object of JSON; empty where the text is none."""
    try:
        found = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
