"""Who found what: per run, per fault, and over all of them, as counts with intervals.

Our doctor has *found* a fault where a finding at warning or above names it among its causes; it is *right
first* where the first cause of its first finding is the fault: what a reader sees on top. The other packages
are judged by ``peers.mapping``, which is kinder. *False* alarms are those on healthy runs.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.doctor.asking import Said
from benchmarks.doctor.peers.alarms import Alarm
from benchmarks.doctor.peers.mapping import WORDS, checks_for

GRAVE = ("critical", "warning")


@dataclass(frozen=True, slots=True)
class Judged:
    """What one tool said of one run, and whether it was right.

    cause: the fault; None for a healthy run. alarms: (check, severity) of everything it said.
    found, first: see above; False for healthy runs. named: the fault that it blames first, ours alone.
    """

    run: str
    cause: str | None
    alarms: tuple[tuple[str, str], ...]
    found: bool = False
    first: bool = False
    named: str | None = None

    @property
    def critical(self) -> bool:
        return any(severity == "critical" for _, severity in self.alarms)

    @property
    def alarmed(self) -> bool:
        return any(severity in GRAVE for _, severity in self.alarms)


def judge_ours(run: str, cause: str | None, accepted: frozenset[str], said: Sequence[Said]) -> Judged:
    """``accepted``: the names under which the fault counts as named."""
    grave = [one for one in said if one.severity in GRAVE]
    named = grave[0].causes[0] if grave and grave[0].causes else None
    return Judged(
        run,
        cause,
        tuple((one.rule, one.severity) for one in said),
        found=any(accepted & set(one.causes) for one in grave),
        first=named in accepted,
        named=named,
    )


def judge_theirs(tool: str, run: str, cause: str | None, said: Sequence[Alarm]) -> Judged:
    """By the mapping of ``peers.mapping``."""
    alarms = tuple((one.check, one.severity) for one in said)
    if cause is None:
        return Judged(run, None, alarms)
    checks = checks_for(cause, tool)
    hits = [one for one in said if one.check in checks and one.severity in GRAVE]
    words = re.compile(WORDS[cause], re.IGNORECASE | re.DOTALL)
    return Judged(run, cause, alarms, found=bool(hits), first=any(words.search(one.text) for one in hits))


@dataclass(frozen=True, slots=True)
class Count:
    """``hits`` of ``tries``."""

    hits: int
    tries: int

    @property
    def share(self) -> float:
        return self.hits / self.tries if self.tries else math.nan

    def __str__(self) -> str:
        return f"{self.hits}/{self.tries}"


def count(flags: Iterable[bool]) -> Count:
    """How many are true."""
    listed = list(flags)
    return Count(sum(listed), len(listed))


def wilson(counted: Count, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share; (0, 1) where nothing was tried. Source: Wilson 1927."""
    n, p = counted.tries, counted.share
    if not n:
        return 0.0, 1.0
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Row:
    """One fault: its runs, how many were found and blamed first, and how often its blame was right.

    precision: ours: of the runs whose first cause is this fault, those that have it. Theirs: of the runs
    in which one of the fault's checks spoke, those in which it was right to.
    """

    cause: str
    found: Count
    first: Count
    precision: Count


@dataclass(frozen=True, slots=True)
class Card:
    """One tool over the whole benchmark."""

    tool: str
    rows: tuple[Row, ...]
    found: Count
    first: Count
    precision: Count
    critical_false: Count
    false: Count
    runs: tuple[Judged, ...] = field(repr=False, default=())


def score(tool: str, judged: Sequence[Judged], causes: Sequence[str]) -> Card:
    """The tool's card. precision: of the runs with an alarm, those in which it was right about the fault."""
    faulty = [one for one in judged if one.cause is not None]
    healthy = [one for one in judged if one.cause is None]
    rows = tuple(
        Row(
            cause,
            count(one.found for one in faulty if one.cause == cause),
            count(one.first for one in faulty if one.cause == cause),
            _precision(tool, cause, judged),
        )
        for cause in causes
    )
    return Card(
        tool,
        rows,
        found=count(one.found for one in faulty),
        first=count(one.first for one in faulty),
        precision=count(one.found for one in judged if one.alarmed),
        critical_false=count(one.critical for one in healthy),
        false=count(one.alarmed for one in healthy),
        runs=tuple(judged),
    )


def _precision(tool: str, cause: str, judged: Sequence[Judged]) -> Count:
    if tool == "trimtab":
        return count(one.first for one in judged if one.named == cause)
    checks = checks_for(cause, tool)
    spoke = [one for one in judged if any(c in checks and s in GRAVE for c, s in one.alarms)]
    return count(one.found for one in spoke)
