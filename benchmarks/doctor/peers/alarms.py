"""What a package says of a run, in one form for all of them; and the columns that they ask for."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.record.reader import RunReader
from trimtab.record.rows import RolloutRow

Severity = Literal["critical", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One finding. check: the package's own name of what found it. text: all it says, remedies included."""

    check: str
    severity: Severity
    text: str


def seen(reader: RunReader, step: int, *keys: str) -> float | None:
    """The first of these metrics that the step has."""
    return next((v for key in keys if (v := reader.history.value(step, key)) is not None), None)


def steps_of(reader: RunReader) -> list[int]:
    """The steps with metrics."""
    return reader.history.times.steps.tolist()


def parts_of(reader: RunReader, step: int) -> dict[str, float]:
    """Each grader's mean value, by its name; what is only watched is among them."""
    prefix = "grades/part/"
    return {
        key.removeprefix(prefix): value
        for key, value in reader.history.metrics(step).items()
        if key.startswith(prefix)
    }


def rows_of(reader: RunReader, step: int) -> list[RolloutRow]:
    """The recorded rollouts that were trained on in a step; none where the step has no file."""
    if step not in reader.rollout_steps():
        return []
    return [row for row in reader.rollouts(step) if row.kept]


def advantages_of(rows: list[RolloutRow]) -> np.ndarray:
    """The advantage of each rollout that has one."""
    return np.array([row.advantage for row in rows if row.advantage is not None], dtype=np.float64)


def soft(reader: RunReader) -> bool:
    """Whether the run's trust region has no clip; then frameworks log no clip share either."""
    algorithm = reader.run["run"]["algorithm"]
    return algorithm["name"] in ("sapo", "cispo") or "soft-gate" in str(algorithm.get("surrogate"))
