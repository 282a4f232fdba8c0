"""Reads a run directory, finished, running or torn; never writes into it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trimtab.errors import DataError
from trimtab.metrics import Histogram
from trimtab.record.events import BEGINS, ENDS, Event
from trimtab.record.history import History
from trimtab.record.jsonl import JsonlTail
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
    Raises DataError where there is no run, or one of a newer schema.
    """

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(Path(path))
        self.run = self._description()
        self.history = History()
        self.evaluations = History()
        self.events: list[dict[str, Any]] = []
        self.damage: list[Damage] = []
        self._metrics = JsonlTail(self.folder.metrics)
        self._distributions = JsonlTail(self.folder.distributions)
        self._events = JsonlTail(self.folder.events)
        self._places: dict[int, int] = {}
        self.refresh()

    @property
    def name(self) -> str:
        return self.folder.path.name

    def refresh(self) -> int:
        """Read on; the number of new metrics and event lines. After a resume run.json is read again."""
        new = 0
        for fields in self._objects(self._metrics, ("step", "time", "metrics")):
            self.history.append(fields["step"], fields["time"], fields["metrics"], fields.get("missing"))
            new += 1
        for fields in self._objects(self._events, ("time", "event")):
            self.events.append(fields)
            new += 1
            if fields["event"] == Event.RESUMED:
                self.run = self._description()
            elif fields["event"] == Event.EVALUATED and fields.get("step") is not None:
                self.evaluations.append(fields["step"], fields["time"], evaluation_values(fields))
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
        quiet = self._quiet_seconds()
        last = next((e for e in reversed(self.events) if e["event"] in ENDS | BEGINS), None)
        if is_held(self.folder.lock):
            return Status(State.RUNNING, "its process is alive", quiet)
        if last is not None and last["event"] in ENDS:
            return Status(State(last["event"]), str(last.get("reason", "it reached its last step")), quiet)
        holder = read_holder(self.folder.lock)
        if holder is not None and holder.machine != socket.gethostname():
            detail = f"process {holder.process} on {holder.machine} wrote last, {quiet:.0f} s ago"
            return Status(State.UNKNOWN, detail, quiet)
        return Status(State.KILLED, "its process is gone and said nothing", quiet)

    def _objects(self, tail: JsonlTail, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for offset, text in tail.read():
            try:
                found = json.loads(text)
            except ValueError as error:
                self.damage.append(Damage(tail.path.name, offset, str(error)))
                continue
            lacking = [name for name in fields if not isinstance(found, dict) or name not in found]
            if lacking:
                self.damage.append(Damage(tail.path.name, offset, f"no {', '.join(lacking)}"))
            else:
                yield found

    def _index_distributions(self) -> None:
        for offset, text in self._distributions.read():
            found = STEP.match(text)
            if found is None:
                self.damage.append(Damage(self._distributions.path.name, offset, "no step"))
                continue
            step = int(found[1])
            if self._places and step <= next(reversed(self._places)):
                self._places = {seen: place for seen, place in self._places.items() if seen < step}
            self._places[step] = offset

    def _description(self) -> dict[str, Any]:
        if not self.folder.run.exists():
            raise DataError(f"{self.folder.path} is not a run directory: it has no run.json")
        found = _json(self.folder.run)
        if found.get("schema", 0) > SCHEMA_VERSION:
            raise DataError(
                f"{self.folder.path} was written with schema {found['schema']}, this trimtab reads up to "
                f"{SCHEMA_VERSION}; install a newer trimtab"
            )
        return found

    def _quiet_seconds(self) -> float:
        files = (self.folder.metrics, self.folder.events, self.folder.distributions, self.folder.run)
        written = [path.stat().st_mtime for path in files if path.exists()]
        return max(0.0, time.time() - max(written, default=0.0))


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(
            f"{path} is not valid JSON ({error}); it was not written by trimtab, or edited"
        ) from None
