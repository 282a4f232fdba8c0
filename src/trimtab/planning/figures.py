"""A number of a plan, and whether it was measured, computed or assumed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Origin(StrEnum):
    """Where a number comes from.

    measured: a clock or a counter said so, on this machine or in a recorded run.
    computed: follows from the model's shape, the settings and other numbers by a formula of docs/plan.md.
    assumed: neither; a data sheet, a usual value, or what the user said.
    """

    MEASURED = "measured"
    COMPUTED = "computed"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Figure:
    """A named number with its unit, where it comes from, and how it was found in a few words."""

    name: str
    value: float
    unit: str
    origin: Origin
    how: str

    def to_json(self) -> dict[str, Any]:
        """Plain fields, as ``trimtab plan --json`` prints them."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "origin": str(self.origin),
            "how": self.how,
        }
