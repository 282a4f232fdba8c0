"""What the rules look at: a run's record, read lazily. A case never changes, so a rule is a pure function."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.doctor.setup import Setup, setup_of
from trimtab.doctor.statistics import Course, course_of
from trimtab.errors import DataError
from trimtab.record.history import History, Series

if TYPE_CHECKING:
    from trimtab.record.reader import RunReader
    from trimtab.record.rows import RolloutRow

FIRST_STEPS, LAST_STEPS, BETWEEN = 3, 4, 3
"""Steps whose rollouts are read: so many at the start, at the end, and spread in between."""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """The recorded rollouts of chosen steps; ``read`` opens one step's file when it is first asked for."""

    steps: tuple[int, ...] = ()
    read: Callable[[int], Sequence[RolloutRow]] = field(default=lambda step: ())

    @cached_property
    def all(self) -> tuple[RolloutRow, ...]:
        """The rows of all chosen steps, oldest first."""
        return tuple(row for step in self.steps for row in self.of(step))

    @cached_property
    def _kept(self) -> dict[int, tuple[RolloutRow, ...]]:
        return {}

    def of(self, step: int) -> tuple[RolloutRow, ...]:
        if step not in self._kept:
            self._kept[step] = tuple(self.read(step))
        return self._kept[step]

    def groups(self, step: int) -> dict[str, list[RolloutRow]]:
        """The rows of a step by the key of their group."""
        found: dict[str, list[RolloutRow]] = {}
        for row in self.of(step):
            found.setdefault(row.group, []).append(row)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One run at one moment.

    history: metrics; evaluations: ``evaluation/*`` by finished steps; events: all, in order.
    setup: what the run was set up to do; facts: ``facts`` of run.json.
    """

    history: History
    evaluations: History = field(default_factory=History)
    events: Sequence[Mapping[str, Any]] = ()
    setup: Setup = field(default_factory=Setup)
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rollouts: Rollouts = field(default_factory=Rollouts)

    @property
    def step(self) -> int:
        """The last step with metrics; -1 before the first."""
        last = self.history.last_step
        return -1 if last is None else last

    @cached_property
    def _courses(self) -> dict[str, Course | None]:
        return {}

    def course(self, key: str) -> Course | None:
        """How the metric went; None where no step has it."""
        if key not in self._courses:
            self._courses[key] = course_of(self.history.series(key))
        return self._courses[key]

    def series(self, key: str) -> Series:
        return self.history.series(key)

    def has(self, key: str) -> bool:
        return self.course(key) is not None

    def now(self, key: str, default: float = 0.0) -> float:
        course = self.course(key)
        return default if course is None else course.now

    def median(self, key: str, default: float = 0.0) -> float:
        """Over the whole run."""
        values = self.series(key).values
        return float(np.median(values)) if len(values) else default

    def missing(self, *keys: str) -> tuple[str, ...]:
        """Those of the keys that no step has."""
        return tuple(key for key in keys if not self.has(key))

    def family(self, prefix: str) -> list[str]:
        """The keys of the run that begin so."""
        return [key for key in self.history.keys if key.startswith(prefix)]

    def counted(self, event: str) -> list[Mapping[str, Any]]:
        """The events of this kind."""
        return [entry for entry in self.events if entry.get("event") == event]

    @cached_property
    def opening(self) -> tuple[str, ...]:
        """What the run said before it began."""
        lines = self.facts.get("opening", ())
        return tuple(line for line in lines if isinstance(line, str))

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Results that several rules need, by name; see ``doctor.evidence``."""
        return {}


def chosen_steps(steps: Sequence[int]) -> tuple[int, ...]:
    """The steps whose rollouts are worth reading: the first, the last, and some in between."""
    if len(steps) <= FIRST_STEPS + LAST_STEPS + BETWEEN:
        return tuple(steps)
    middle = np.linspace(FIRST_STEPS, len(steps) - LAST_STEPS - 1, BETWEEN).astype(int)
    places = {*range(FIRST_STEPS), *(int(i) for i in middle), *range(len(steps) - LAST_STEPS, len(steps))}
    return tuple(steps[i] for i in sorted(places))


def case_of(reader: RunReader) -> Case:
    """The case of a run directory, as it is now."""
    last = reader.history.last_step
    steps = [step for step in reader.rollout_steps() if last is None or step <= last]
    return Case(
        history=reader.history,
        evaluations=reader.evaluations,
        events=standing(reader.events),
        setup=setup_of(reader.run.get("run", {})),
        facts=reader.run.get("facts", {}),
        rollouts=Rollouts(chosen_steps(steps), lambda step: _rows(reader, step)),
    )


def standing(events: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The events that count: a resume voids those of the steps that it does anew."""
    found: list[Mapping[str, Any]] = []
    for event in events:
        if event.get("event") == "resumed":
            done = event.get("step") or 0
            found = [e for e in found if e.get("step") is None or e["step"] < done]
        found.append(event)
    return tuple(found)


def _rows(reader: RunReader, step: int) -> Sequence[RolloutRow]:
    try:
        return reader.rollouts(step)
    except (DataError, OSError, KeyError):  # a damaged file takes away evidence, not the diagnosis
        return ()
