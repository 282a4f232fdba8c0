"""Reads a run directory, finished, running or torn; never writes into it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trimtab.errors import DataError
from trimtab.metrics import Histogram
from trimtab.record import bulk
from trimtab.record.events import BEGINS, ENDS, Event
from trimtab.record.findings import Finding, finding_from_json
from trimtab.record.history import History
from trimtab.record.jsonl import JsonlTail, Line
from trimtab.record.layout import SCHEMA_VERSION, RunFolder
from trimtab.record.lock import is_held, read_holder
from trimtab.record.summary import evaluation_values

if TYPE_CHECKING:
    from trimtab.record.rows import RolloutRow

STEP = re.compile(rb'\{"step":\s*(\d+)')
NOT_STAGES = ("step", "rewards_share")


class State(StrEnum):
    """What can honestly be said of a run from outside."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Status:
    """A run's state, why we think so, and the seconds since anything was last written."""

    state: State
    detail: str
    quiet_seconds: float


class Damage(NamedTuple):
    """A line that is complete and still no valid object; it was skipped."""

    file: str
    offset: int
    why: str


class RunReader:
    """One run directory. ``refresh`` takes in what was added since the last time.

    ``history``: metrics; ``evaluations``: ``evaluation/*`` by the number of steps done before, from the
    events; ``events``: all events in order; ``damage``: lines that had to be skipped.
    glimpse: read only about so many lines of metrics and of distributions, evenly over the run; such a
    reader is for a first look and is not refreshed.
    Raises DataError where there is no run, or one of a newer schema.
    """

    def __init__(self, path: Path, *, glimpse: int = 0) -> None:
        self.folder = RunFolder(Path(path))
        self._glimpse = glimpse
        self.run = self._description()
        self.history = History()
        self.evaluations = History()
        self.events: list[dict[str, Any]] = []
        self.damage: list[Damage] = []
        self._metrics = JsonlTail(self.folder.metrics)
        self._distributions = JsonlTail(self.folder.distributions)
        self._events = JsonlTail(self.folder.events)
        self._places: dict[int, int] = {}
        self._indexing = threading.Lock()
        self.refresh()

    @property
    def name(self) -> str:
        return self.folder.path.name

    def refresh(self) -> int:
        """Read on; the number of new metrics and event lines. After a resume run.json is read again."""
        new = self._read_metrics()
        for fields in self._objects(self._events, ("time", "event")):
            self.events.append(fields)
            new += 1
            if fields["event"] == Event.RESUMED:
                self.run = self._description()
            elif fields["event"] == Event.EVALUATED and _fits("step", fields.get("step")):
                self._evaluated(fields)
        return new

    @property
    def torn(self) -> dict[str, int]:
        """Bytes of an unfinished last line, by file: being written just now, or left by a kill."""
        tails = (self._metrics, self._distributions, self._events)
        return {tail.path.name: tail.torn for tail in tails if tail.torn}

    def distribution_steps(self) -> list[int]:
        """Steps that have histograms, ascending."""
        self._index_distributions()
        return sorted(self._places)

    def distributions(self, step: int) -> dict[str, Histogram]:
        """The histograms of a step, by key; empty where it has none."""
        self._index_distributions()
        if step not in self._places:
            return {}
        stored = json.loads(self._distributions.at(self._places[step]))["distributions"]
        return {key: Histogram.from_json(fields) for key, fields in stored.items()}

    def findings(self) -> list[Finding]:
        """The lines of findings.jsonl that count, oldest first: a resume voids those of the steps that it
        does anew. A rule speaks again when what it says has changed; its last line is what holds.
        """
        again = [(e["time"], e["step"]) for e in self.events if e["event"] == Event.RESUMED]
        found: list[Finding] = []
        for fields in self._objects(JsonlTail(self.folder.findings), ("time", "rule", "outcome", "step")):
            void = any(fields["time"] <= when and fields["step"] >= (step or 0) for when, step in again)
            if not void:
                found.append(finding_from_json(fields))
        return found

    def rollout_steps(self) -> list[int]:
        """Steps that have a rollouts file, ascending."""
        return self.folder.rollout_steps()

    def rollouts(self, step: int) -> list[RolloutRow]:
        """The recorded rollouts of a step. Raises DataError where the step has none."""
        from trimtab.record.rows import read_rollouts  # Arrow is heavy, and curves do without it

        return read_rollouts(self.folder.rollouts_of(step))

    def summary(self) -> dict[str, Any] | None:
        """summary.json; None until the run is finished."""
        return _json(self.folder.summary) if self.folder.summary.exists() else None

    def stage_seconds(self) -> dict[str, float]:
        """Seconds by stage over all steps that count."""
        prefix = "seconds/"
        keys = [key for key in self.history.keys if key.startswith(prefix) and key.count("/") == 1]
        stages = [key.removeprefix(prefix) for key in keys]
        return {s: float(self.history.series(prefix + s).values.sum()) for s in stages if s not in NOT_STAGES}

    def status(self) -> Status:
        """Running means: a living process on this machine holds the directory's lock. A lock of another
        machine cannot be tested from here; such a run is ``unknown`` until it says itself that it ended.
        """
        last = next((e for e in reversed(self.events) if e["event"] in ENDS | BEGINS), None)
        return status_of(self.folder, last)

    def _read_metrics(self) -> int:
        if self._glimpse:
            return self._append(self._metrics.spread(self._glimpse))
        if self._metrics.waiting() < bulk.WORTH:
            return self._append(self._metrics.read())
        before = len(self.history)
        for block in self._metrics.blocks(bulk.BLOCK):
            if not bulk.append_block(self.history, block.text):
                self._append(block.lines)
        return len(self.history) - before

    def _evaluated(self, fields: dict[str, Any]) -> None:
        try:
            values = evaluation_values(fields)
        except (TypeError, ValueError):  # no run of ours: the event stays one without curves
            return
        told = {key: value for key, value in values.items() if math.isfinite(value)}
        self.evaluations.append(fields["step"], fields["time"], told)

    def _append(self, lines: Iterable[Line]) -> int:
        new = 0
        name = self._metrics.path.name  # values are looked at below, all at once: that is faster
        for fields in self._parsed(lines, name, ("step", "time", "metrics"), json.loads):
            values, missing = fields["metrics"], fields.get("missing")
            if not _finite(values):  # no run of ours wrote this line
                values = {key: value for key, value in values.items() if _finite({key: value})}
                missing = {key: "no finite number" for key in fields["metrics"] if key not in values}
            self.history.append(fields["step"], fields["time"], values, missing)
            new += 1
        return new

    def _objects(self, tail: JsonlTail, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        return self._parsed(tail.read(), tail.path.name, fields)

    def _parsed(
        self,
        lines: Iterable[Line],
        file: str,
        fields: tuple[str, ...],
        decode: Callable[[bytes], Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        for offset, text in lines:
            try:
                found = (decode or _decode)(text)
            except (ValueError, RecursionError) as error:
                self.damage.append(Damage(file, offset, str(error)))
                continue
            wrong = [
                name for name in fields if not isinstance(found, dict) or not _fits(name, found.get(name))
            ]
            if wrong:
                self.damage.append(Damage(file, offset, f"no {', '.join(wrong)}"))
            else:
                yield found

    def _index_distributions(self) -> None:
        tail = self._distributions
        with self._indexing:
            for offset, text in tail.spread(self._glimpse) if self._glimpse else tail.read():
                found = STEP.match(text)
                if found is None:
                    self.damage.append(Damage(tail.path.name, offset, "no step"))
                    continue
                step = int(found[1])
                if self._places and step <= next(reversed(self._places)):
                    self._places = {seen: place for seen, place in self._places.items() if seen < step}
                self._places[step] = offset

    def _description(self) -> dict[str, Any]:
        if not self.folder.run.exists():
            raise DataError(f"{self.folder.path} is not a run directory: it has no run.json")
        found = _json(self.folder.run)
        if not isinstance(found, dict) or not isinstance(found.get("schema", 0), int):
            raise DataError(f"{self.folder.run} does not describe a run; it was not written by trimtab")
        if found.get("schema", 0) > SCHEMA_VERSION:
            raise DataError(
                f"{self.folder.path} was written with schema {found['schema']}, this trimtab reads up to "
                f"{SCHEMA_VERSION}; install a newer trimtab"
            )
        return found


def status_of(folder: RunFolder, last: Mapping[str, Any] | None) -> Status:
    """``RunReader.status`` from the run's last event that begins or ends it, without reading the rest."""
    files = (folder.metrics, folder.events, folder.distributions, folder.run)
    written = [path.stat().st_mtime for path in files if path.exists()]
    quiet = max(0.0, time.time() - max(written, default=0.0))
    if is_held(folder.lock):
        return Status(State.RUNNING, "its process is alive", quiet)
    if last is not None and last["event"] in ENDS:
        return Status(State(last["event"]), str(last.get("reason", "it reached its last step")), quiet)
    holder = read_holder(folder.lock)
    if holder is not None and holder.machine != socket.gethostname():
        detail = f"process {holder.process} on {holder.machine} wrote last, {quiet:.0f} s ago"
        return Status(State.UNKNOWN, detail, quiet)
    return Status(State.KILLED, "its process is gone and said nothing", quiet)


KINDS: dict[str, tuple[type, ...]] = {"step": (int,), "time": (int, float), "metrics": (dict,)}
"""Types of the fields on which everything rests; where ``step`` may be null it is not asked for."""


def _fits(name: str, value: Any) -> bool:
    fits = isinstance(value, KINDS.get(name, (str,))) and not isinstance(value, bool)
    return fits and (not isinstance(value, int | float) or abs(value) < 1 << 53)


def _finite(values: Mapping[str, Any]) -> bool:
    try:
        return math.isfinite(sum(values.values()))
    except (TypeError, OverflowError):
        return False


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


DECODER = json.JSONDecoder(parse_constant=str, parse_float=_number)


def _decode(text: bytes) -> Any:
    """A value of which everything is JSON again: NaN and what is beyond a float stay as text."""
    return DECODER.decode(text.decode("utf-8"))


def _json(path: Path) -> dict[str, Any]:
    try:
        return _decode(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not valid JSON ({error}); it was not written by trimtab, or edited"
        ) from None
