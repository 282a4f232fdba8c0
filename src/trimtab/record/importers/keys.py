"""Foreign names and step numbers made ours."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.catalog import find
from trimtab.catalog.aliases import Alias, from_trl, from_verl
from trimtab.errors import SettingError
from trimtab.record.importers.source import Entry, Framework

FROM: dict[Framework, Callable[[str], Alias | None]] = {"trl": from_trl, "verl": from_verl}
TURN = {"trl": "completions/mean_length"}
"""A name that is logged only where new answers were sampled, by framework."""

WITHOUT = {"critic/returns/mean": "critic/values/mean"}
"""A name that means something else in a run without the other one: no critic, no return."""

KEPT_AS = "imported/"
PREFIX = "train/"
"""What transformers puts before its names in TensorBoard and CSV files."""

LONGEST_KEY = 200


@dataclass(slots=True)
class Names:
    """What became of each foreign name; one that nobody knows is kept under ``imported/``."""

    aliases: dict[str, Alias] = field(default_factory=dict[str, Alias])

    def take(self, foreign: str, framework: Framework | None) -> None:
        """Find the name that this one has here."""
        alias = FROM[framework](_bare(foreign)) if framework else None
        if alias is None and _known(foreign):
            alias = Alias(key=foreign)
        if alias is None or not _known(alias.key):
            alias = Alias(key=KEPT_AS + _clean(foreign))
        self.aliases[foreign] = alias

    @property
    def notes(self) -> dict[str, str]:
        """Our key -> the foreign name, and how what it counts may differ."""
        return {
            alias.key: f"{foreign}: {alias.note}" if alias.note else foreign
            for foreign, alias in self.aliases.items()
            if not alias.key.startswith(KEPT_AS)
        }

    @property
    def kept(self) -> list[str]:
        """Foreign names without one of ours."""
        return [foreign for foreign, alias in self.aliases.items() if alias.key.startswith(KEPT_AS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of ours: metrics under our keys, those that met a NaN, and its first and last foreign step."""

    step: int
    first: int
    last: int
    time: float | None
    metrics: Mapping[str, float]
    missing: Mapping[str, str]


def framework_of(keys: Iterable[str]) -> Framework | None:
    """Whose names most of these are; None where none is known."""
    names = [_bare(key) for key in set(keys)]
    hits: dict[Framework, int] = {
        framework: sum(translate(name) is not None for name in names) for framework, translate in FROM.items()
    }
    best = max(hits, key=lambda framework: hits[framework])
    return best if hits[best] else None


def stride_of(entries: Sequence[Entry], framework: Framework | None) -> int | None:
    """Optimizer steps from one sampling to the next; None where the log does not show it.

    It shows it where each optimizer step has an entry, and those with new answers come evenly.
    """
    mark = TURN.get(framework or "")
    turns = [entry.at for entry in entries if any(_bare(key) == mark for key in entry.values)]
    if len(turns) < 2 or any(b.at - a.at != 1 for a, b in itertools.pairwise(entries)):
        return None
    gaps = {b - a for a, b in itertools.pairwise(turns)}
    return gaps.pop() if len(gaps) == 1 else None


def steps_of(
    entries: Sequence[Entry], framework: Framework | None, first: int, stride: int, names: Names
) -> list[Step]:
    """Entries of ``stride`` optimizer steps joined into one step each, under our keys.

    step = (foreign step - first) // stride. Joined as the catalogue says: sums, maxima and minima as such,
    the rest as a mean of the updates (each of which logs a mean already); what is not ours as it came last.
    """
    logged = dict.fromkeys(key for entry in entries for key in entry.values)
    bare = {_bare(key) for key in logged}
    for key in logged:
        other = WITHOUT.get(_bare(key))
        names.take(key, framework if other is None or other in bare else None)
    turns: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.at >= first:
            turns.setdefault((entry.at - first) // stride, []).append(entry)
    return [_joined(step, turns[step], names) for step in sorted(turns)]


def _joined(step: int, entries: Sequence[Entry], names: Names) -> Step:
    values: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for entry in entries:
        for foreign, value in entry.values.items():
            alias = names.aliases[foreign]
            if math.isfinite(value):
                values.setdefault(alias.key, []).append(alias.of(value))
            else:
                missing[alias.key] = f"{foreign} was {value}"
    times = [entry.time for entry in entries if entry.time is not None]
    return Step(
        step=step,
        first=entries[0].at,
        last=entries[-1].at,
        time=max(times) if times else None,
        metrics={key: _join(key, found) for key, found in values.items() if key not in missing},
        missing=missing,
    )


def _join(key: str, values: Sequence[float]) -> float:
    if key.startswith(KEPT_AS):
        return values[-1]
    reduction = find(key).reduction
    if reduction == "sum":
        return sum(values)
    if reduction in ("maximum", "minimum"):
        return max(values) if reduction == "maximum" else min(values)
    return sum(values) / len(values)


def _known(key: str) -> bool:
    try:
        find(key)
    except SettingError:
        return False
    return True


def _bare(key: str) -> str:
    return key.removeprefix(PREFIX)


def _clean(key: str) -> str:
    """Without characters that could steer a terminal, and of a bounded length."""
    shown = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in key)
    return shown[:LONGEST_KEY] or "?"
