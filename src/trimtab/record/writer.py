"""Writes the run directory: the one place where anything of a run goes to disk, checkpoints apart."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from trimtab.errors import RunError
from trimtab.metrics import Metric, histograms, read
from trimtab.record import machine
from trimtab.record.config import RecordConfig
from trimtab.record.events import Event
from trimtab.record.findings import Finding, finding_to_dict
from trimtab.record.jsonl import JsonlWriter, plain
from trimtab.record.layout import SCHEMA_VERSION, RunFolder, write_aside
from trimtab.record.lock import RunLock
from trimtab.record.rollouts import GroupEntry, UpdateEntry, write_rollouts
from trimtab.record.summary import Summary


class SavesItself(Protocol):
    """A tokenizer, as far as the record cares."""

    def save_pretrained(self, save_directory: str, /) -> Any: ...


class RunRecord:
    """One run directory, open for writing. Made by ``create`` or ``resume``; use as a context manager.

    Every line is on its way to disk when the call returns, whole or (after a kill) torn and ignored.
    Calls may come from several threads.
    """

    def __init__(self, folder: RunFolder, config: RecordConfig, lock: RunLock) -> None:
        self.folder = folder
        self.config = config
        self._lock = lock
        self._mutex = threading.Lock()
        self._metrics = JsonlWriter(folder.metrics)
        self._distributions = JsonlWriter(folder.distributions)
        self._events = JsonlWriter(folder.events)
        self._findings: JsonlWriter | None = None
        self._ended = False

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        run: object,
        seeds: Mapping[str, int],
        facts: Mapping[str, Any] | None = None,
        config: RecordConfig | None = None,
    ) -> Self:
        """A new run. ``run`` is the resolved run (a dataclass or a mapping), ``facts`` whatever else makes
        the run known: the data's report and hash, the sampler in effect, numbers of parameters.

        Raises RunError where the directory already holds a run.
        """
        folder = RunFolder(Path(path))
        if folder.run.exists():
            raise RunError(f"{path} already holds a run; resume it, or give the new run another name")
        record = cls._open(folder, config)
        write_json(folder.run, _description(folder, run, seeds, facts, created=time.time()))
        record.event(Event.STARTED, process=os.getpid())
        return record

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        step: int,
        run: object,
        seeds: Mapping[str, int],
        facts: Mapping[str, Any] | None = None,
        config: RecordConfig | None = None,
    ) -> Self:
        """Go on with a run after ``step`` finished steps. Lines of later steps stay until those come again.

        run.json then describes the run as it is now; the event ``resumed`` names what changed.
        """
        folder = RunFolder(Path(path))
        if not folder.run.exists():
            raise RunError(f"{path} holds no run to resume: it has no run.json")
        record = cls._open(folder, config)
        before: dict[str, Any] = json.loads(folder.run.read_text(encoding="utf-8"))
        now = _description(folder, run, seeds, facts, created=before["created"])
        write_json(folder.run, now)
        folder.summary.unlink(missing_ok=True)  # it would speak of an end that is no longer one
        record.event(Event.RESUMED, step, process=os.getpid(), changed=changes(before["run"], now["run"]))
        return record

    @classmethod
    def _open(cls, folder: RunFolder, config: RecordConfig | None) -> Self:
        folder.path.mkdir(parents=True, exist_ok=True)
        lock = RunLock.take(folder.lock)
        folder.clean()
        return cls(folder, RecordConfig() if config is None else config, lock)

    def event(self, event: Event | str, step: int | None = None, **fields: Any) -> None:
        """Append one event; raises ValueError for a word that ``Event`` does not know."""
        line = {"time": _now(), "step": step, "event": str(Event(event)), **plain(fields)}
        with self._mutex:
            self._events.write(line)

    def step(self, step: int, metrics: Mapping[str, Metric]) -> None:
        """Write the metrics of a finished step, once a step.

        Numbers go to metrics.jsonl, histograms to distributions.jsonl (their means are numbers too).
        What observed nothing is left out; what met a NaN is named under ``missing``.
        """
        found = read(metrics)
        line: dict[str, Any] = {"step": step, "time": _now(), "metrics": found.values}
        if found.missing:
            line["missing"] = found.missing
        shapes = {key: histogram.to_json() for key, histogram in histograms(metrics).items()}
        with self._mutex:
            if shapes:  # first, so that every step with metrics has its histograms
                self._distributions.write({"step": step, "time": line["time"], "distributions": shapes})
            self._metrics.write(line)

    def rollouts(
        self,
        step: int,
        groups: Sequence[GroupEntry],
        updates: Iterable[UpdateEntry] = (),
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Write the rollouts of a step as one Parquet file, if it is this step's turn.

        groups: every group whose fate the step decided; updates: what the step trained on;
        flags: group key -> why its tokens must be kept.
        """
        if step % self.config.rollouts_every == 0 or flags:
            write_rollouts(
                self.folder.rollouts_of(step), step, groups, tuple(updates), flags or {}, self.config
            )

    def finding(self, finding: Finding) -> None:
        """Append one finding of the doctor; the file is made with the first one."""
        with self._mutex:
            if self._findings is None:
                self._findings = JsonlWriter(self.folder.findings)
            self._findings.write({"time": _now(), **finding_to_dict(finding)})

    def tokenizer(self, tokenizer: SavesItself) -> None:
        """Keep the tokenizer, so that recorded token ids can be shown without the model."""
        if not self.folder.tokenizer.exists():
            write_aside(self.folder.tokenizer, lambda aside: tokenizer.save_pretrained(str(aside)))

    def finish(self, summary: Summary, step: int | None = None) -> None:
        """Close a run that reached its end: summary.json, then the event ``finished``."""
        write_json(self.folder.summary, summary.to_json())
        self.event(Event.FINISHED, step)
        self._ended = True

    def stop(self, reason: str, step: int | None = None) -> None:
        """Close a run that had to end early, with the reason."""
        self.event(Event.STOPPED, step, reason=reason)
        self._ended = True

    def close(self) -> None:
        """Give the directory back. A run that was neither finished nor stopped will read as killed."""
        for writer in (self._metrics, self._distributions, self._events, self._findings):
            if writer is not None:
                writer.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._ended:
            self.stop(f"{type(error).__name__}: {error}")
        self.close()


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """A readable JSON file, whole or not at all."""
    text = json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def changes(before: Any, now: Any, at: str = "") -> dict[str, list[Any]]:
    """Dotted name of each setting that differs -> [before, now]; None where it was not there."""
    if isinstance(before, dict) and isinstance(now, dict):
        found: dict[str, list[Any]] = {}
        for name in {**before, **now}:
            found |= changes(before.get(name), now.get(name), f"{at}.{name}" if at else str(name))
        return found
    return {} if before == now else {at: [before, now]}


def _description(
    folder: RunFolder,
    run: object,
    seeds: Mapping[str, int],
    facts: Mapping[str, Any] | None,
    *,
    created: float,
) -> dict[str, Any]:
    return {
        "schema": SCHEMA_VERSION,
        "name": folder.path.name,
        "created": round(created, 3),
        "run": plain(run),
        "seeds": plain(seeds),
        "versions": machine.versions(),
        "commits": machine.commits(),
        "hardware": machine.hardware(),
        "facts": plain(facts or {}),
    }


def _now() -> float:
    return round(time.time(), 3)
