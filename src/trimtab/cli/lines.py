"""The sentences and numbers that both views show, as plain text."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trimtab.record.summary import stage_table

BARS = "▁▂▃▄▅▆▇█"
PACE_STEPS = 20
COURSE = 40


class Shown(NamedTuple):
    """A metric of the view: label, key in the catalogue, format, and the key of what it is out of."""

    label: str
    key: str
    form: str
    out_of: str | None = None

    def text(self, values: Mapping[str, float]) -> str | None:
        """The value as shown; None when the step has none."""
        if self.key not in values:
            return None
        text = f"{values[self.key]:{self.form}}"
        if self.out_of is None or self.out_of not in values:
            return text
        return f"{text}/{values[self.out_of]:{self.form}}"


SHOWN = (
    Shown("pass rate", "reward/outcome", ".3f"),
    Shown("reward", "reward/mean", ".3f"),
    Shown("entropy", "policy/entropy", ".3f"),
    Shown("length", "length/mean", ".1f"),
    Shown("kept groups", "flow/groups_kept", ".0f", out_of="flow/draws"),
    Shown("updates", "optimizer/updates", ".0f"),
)
"""The pass rate is of everything sampled, before selection; the reward is what is optimised."""


def duration(seconds: float) -> str:
    """``1:02:03``, ``2:03`` or, below ten seconds, ``3.2 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Pace:
    """Time left, from the last steps; time spent between steps, as on evaluations, is not counted."""

    def __init__(self, now: float) -> None:
        self._before = now
        self._recent: deque[float] = deque(maxlen=PACE_STEPS)

    def pause(self, now: float) -> None:
        """What has passed since the last call was no step."""
        self._before = now

    def step(self, now: float) -> None:
        """A step has ended."""
        self._recent.append(now - self._before)
        self._before = now

    def left(self, steps: int) -> float | None:
        """Seconds that this many steps will take; None before the first one."""
        return steps * sum(self._recent) / len(self._recent) if self._recent else None


def sparkline(values: Sequence[float], width: int = COURSE) -> str:
    """The last ``width`` values as a row of bars, from the smallest to the largest among them."""
    recent = [value for value in values if value == value][-width:]
    if not recent:
        return ""
    low, high = min(recent), max(recent)
    if high == low:
        return BARS[0] * len(recent)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in recent)


def evaluation_line(label: str, result: Mapping[str, Any]) -> str:
    """``start   pass@1 0.412 [0.380, 0.444]   pass@8 0.801 [0.770, 0.830]``, intervals at 95%."""
    parts = [f"{name} {_estimate(result, name)}" for name in _estimated(result)]
    if "mean_length" in result:
        parts.append(f"length {result['mean_length']:.1f}")
    if result.get("truncated"):
        parts.append(f"truncated {result['truncated']:.1%}")
    change = result.get("against_start")
    if change:
        low, high = change["interval"]
        parts.append(
            f"against start {change['difference']:+.3f} [{low:+.3f}, {high:+.3f}]: {change['verdict']}"
        )
    return f"{label:<7} " + "   ".join(parts)


def _estimated(result: Mapping[str, Any]) -> list[str]:
    """The names of pass@k and maj@k in an evaluation."""
    return [name for name in result if f"{name}_interval" in result]


def _estimate(result: Mapping[str, Any], name: str) -> str:
    low, high = result[f"{name}_interval"]
    return f"{result[name]:.3f} [{low:.3f}, {high:.3f}]"


def closing_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a finished run says: before and after, how long it took, and where the time went."""
    evaluation = summary.get("evaluation") or {}
    if "start" in evaluation and "final" in evaluation:
        start, final = evaluation["start"], evaluation["final"]
        for name in (name for name in _estimated(final) if name in start):
            yield f"{name}  {_estimate(start, name)}  ->  {_estimate(final, name)}  (95% intervals)"
    seconds = summary.get("seconds") or {}
    if "train" in seconds:
        yield (
            f"{summary['steps']} steps in {duration(seconds['train'])}, "
            f"evaluations {duration(seconds.get('evaluation', 0.0))}, all in all {duration(seconds['total'])}"
        )
    stages = seconds.get("stages") or {}
    if stages:
        yield from stage_table(stages, seconds["train"]).splitlines()
