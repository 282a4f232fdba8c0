"""What preflight says: one ``Check`` a question, and the verdict that they make together."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """From worst to best; ``SKIPPED`` says that it could not be looked at, never that all is well."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The answer to one question about a run that has not begun.

    name: a short constant word. says: what was found, with its numbers, in one sentence.
    advice: what to change, setting and value; empty where nothing is wrong.
    numbers: the same for machines. shown: lines that illustrate it, such as answers.
    """

    name: str
    level: Level
    says: str
    advice: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """All checks of a run, in the order in which a reader wants them."""

    checks: tuple[Check, ...]

    def count(self, level: Level) -> int:
        return sum(check.level is level for check in self.checks)

    @property
    def worst(self) -> Level:
        """The worst level among the checks that could look."""
        return next((level for level in Level if self.count(level)), Level.SKIPPED)

    @property
    def verdict(self) -> str:
        """One sentence: whether to spend."""
        critical, warnings = self.count(Level.CRITICAL), self.count(Level.WARNING)
        blind = self.count(Level.SKIPPED)
        unseen = f"; {_counted(blind, 'check')} could not look" if blind else ""
        if critical:
            return f"not ready: {_counted(critical, 'thing')} would waste the run{unseen}"
        if warnings:
            return f"ready, with {_counted(warnings, 'warning')} to read first{unseen}"
        return f"ready{unseen}"

    def to_json(self) -> dict[str, Any]:
        """Plain values: ``verdict``, ``worst``, and the checks with the fields they have."""
        checks = [
            {
                "name": check.name,
                "level": check.level.value,
                "says": check.says,
                **({"advice": check.advice} if check.advice else {}),
                **({"numbers": dict(check.numbers)} if check.numbers else {}),
                **({"shown": list(check.shown)} if check.shown else {}),
            }
            for check in self.checks
        ]
        return {"verdict": self.verdict, "worst": self.worst.value, "checks": checks}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
