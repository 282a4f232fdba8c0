"""The metrics of a run in memory: columns by key, small enough for a hundred thousand steps."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Series(NamedTuple):
    """One metric over the steps that have it, ascending: ``steps`` int64, ``values`` float64."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class _Column:
    """Growing columns of a key; 16 bytes a step."""

    __slots__ = ("steps", "values")

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")

    def rewind(self, step: int) -> None:
        keep = bisect_left(self.steps, step)
        del self.steps[keep:]
        del self.values[keep:]


class History:
    """Steps in order. A step that comes again (after a resume) replaces itself and all that followed it:
    what came later belonged to a branch of the run that was given up.
    """

    def __init__(self) -> None:
        self._time = _Column()
        self._columns: dict[str, _Column] = {}
        self._missing: dict[int, dict[str, str]] = {}

    def append(
        self, step: int, time: float, values: Mapping[str, float], missing: Mapping[str, str] | None = None
    ) -> None:
        if self._time.steps and step <= self._time.steps[-1]:
            self._rewind(step)
        self._time.steps.append(step)
        self._time.values.append(time)
        columns = self._columns
        for key, value in values.items():  # a million times for a long run: no call more than needed
            column = columns.get(key)
            if column is None:
                column = columns[key] = _Column()
            column.steps.append(step)
            column.values.append(value)
        if missing:
            self._missing[step] = dict(missing)

    def extend(
        self,
        steps: NDArray[np.int64],
        times: NDArray[np.float64],
        columns: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64]]],
        missing: Mapping[int, dict[str, str]],
    ) -> None:
        """Many steps at once, ascending and all behind the last one; each key with the steps that have it."""
        for column, own_steps, values in (
            (self._time, steps, times),
            *((self._columns.setdefault(key, _Column()), *held) for key, held in columns.items()),
        ):
            column.steps.frombytes(np.ascontiguousarray(own_steps, dtype=np.int64).tobytes())
            column.values.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
        self._missing |= missing

    def __len__(self) -> int:
        return len(self._time.steps)

    @property
    def size(self) -> int:
        """Values in memory, over all keys."""
        return sum(len(column.steps) for column in self._columns.values())

    @property
    def last_step(self) -> int | None:
        return self._time.steps[-1] if self._time.steps else None

    @property
    def keys(self) -> list[str]:
        """Keys that at least one step has, in order of first appearance."""
        return [key for key, column in self._columns.items() if column.steps]

    @property
    def times(self) -> Series:
        """Seconds since the epoch at which each step was written."""
        return _series(self._time)

    def series(self, key: str) -> Series:
        """A metric over the run; empty where no step has it."""
        column = self._columns.get(key)
        return _series(column if column is not None else _Column())

    def value(self, step: int, key: str) -> float | None:
        column = self._columns.get(key)
        if column is None:
            return None
        place = bisect_left(column.steps, step)
        found = place < len(column.steps) and column.steps[place] == step
        return column.values[place] if found else None

    def metrics(self, step: int) -> dict[str, float]:
        """All metrics of one step."""
        values = ((key, self.value(step, key)) for key in self._columns)
        return {key: value for key, value in values if value is not None}

    def missing(self, step: int) -> dict[str, str]:
        """Metrics of a step that met a NaN, with the reason."""
        return self._missing.get(step, {})

    def _rewind(self, step: int) -> None:
        self._time.rewind(step)
        for column in self._columns.values():
            column.rewind(step)
        self._missing = {seen: keys for seen, keys in self._missing.items() if seen < step}


def _series(column: _Column) -> Series:
    return Series(np.array(column.steps, dtype=np.int64), np.array(column.values, dtype=np.float64))
