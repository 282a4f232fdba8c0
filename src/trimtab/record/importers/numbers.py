"""Numbers out of foreign objects: what is no number is left out, never guessed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def number_of(value: Any) -> float | None:
    """A number, NaN and infinities included; None for anything else, true and false too."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers_of(fields: Mapping[str, Any], *, leave_out: Collection[str] = ()) -> dict[str, float]:
    """The fields that are numbers."""
    found = {str(name): number_of(value) for name, value in fields.items() if name not in leave_out}
    return {name: value for name, value in found.items() if value is not None}
