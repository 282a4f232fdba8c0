"""The ``[doctor]`` table of a recipe."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab.errors import SettingError, nearest
from trimtab.record.findings import Severity

STOPS = {"never": None, "warning": Severity.WARNING, "critical": Severity.CRITICAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorConfig:
    """How a run is watched while it trains.

    every: steps from one look to the next; 0 does not look. It looks before each checkpoint as well.
    stop_on: the gravity at which a run is stopped, after saving: "never", "critical", or "warning" (any
        finding but a note). A checkpoint counts as healthy while nothing of this gravity is found
        ("never": nothing critical), and the last healthy one is kept until the next healthy one is there.
    """

    every: int = 10
    stop_on: Literal["never", "warning", "critical"] = "never"

    def __post_init__(self) -> None:
        if self.every < 0:
            raise SettingError(f"doctor.every must be >= 0 (0 is off), got {self.every}")
        if self.stop_on not in STOPS:
            value = str(self.stop_on)
            raise SettingError(f"doctor.stop_on: unknown value {value!r}{nearest(value, STOPS)}")

    @property
    def sick_from(self) -> Severity:
        """What a healthy checkpoint must be free of."""
        return STOPS[self.stop_on] or Severity.CRITICAL
