"""What is said of a metric, once: documentation, tooltips, ``trimtab explain`` and tests are made of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

PLACEHOLDERS = {"k": r"\d+", "tokens": r"\d+", "source": r".+", "foreign": r".+"}
"""What stands for a placeholder of a key, where it is narrower than a word."""

WORD = r"[A-Za-z0-9_.-]+"


class Band(NamedTuple):
    """Up to ``good`` a value is healthy, from ``bad`` on it is not, between them it is worth a look.

    Where good > bad, more is better. when: the runs that it speaks of.
    """

    good: float
    bad: float
    when: str

    def judge(self, value: float) -> Literal["healthy", "watch", "unhealthy"]:
        """Where the value lies."""
        sign = 1.0 if self.good < self.bad else -1.0
        if sign * value <= sign * self.good:
            return "healthy"
        return "unhealthy" if sign * value >= sign * self.bad else "watch"

    def __str__(self) -> str:
        more = self.good > self.bad
        return (
            f"{self.when}: healthy {'>=' if more else '<='} {self.good:g}, "
            f"unhealthy {'<=' if more else '>='} {self.bad:g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric, or with a {placeholder} in its key one family of metrics.

    unit: of the value. formula: ASCII, with the letters of ``trimtab.types``.
    mask: what it is taken over. reduction: how parts are joined. meaning: one or two sentences.
    read_with: keys that tell what this one alone cannot. healthy: what a good run shows, in words.
    bands: the same in numbers, where numbers can be given for every run of a kind.
    source: where the definition comes from; empty where it is ours.
    """

    key: str
    unit: str
    formula: str
    mask: str
    reduction: str
    meaning: str
    read_with: tuple[str, ...] = ()
    healthy: str = ""
    bands: tuple[Band, ...] = ()
    source: str = ""

    @property
    def is_family(self) -> bool:
        return "{" in self.key

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the keys of this family, and the key itself where it is no family."""
        return key_pattern(self.key)


@lru_cache(maxsize=512)
def key_pattern(key: str) -> re.Pattern[str]:
    """Matches what a key with {placeholders} stands for; each is a named group of the match."""
    parts = re.split(r"\{(\w+)\}", key)
    names = [f"(?P<{name}>{PLACEHOLDERS.get(name, WORD)})" for name in parts[1::2]]
    fixed = [re.escape(text) for text in parts[0::2]]
    return re.compile("".join(a + b for a, b in zip(fixed, [*names, ""], strict=True)))


def others(key: str, *keys: str) -> tuple[str, ...]:
    """The keys without ``key``: for entries that are read with all of their kin."""
    return tuple(name for name in keys if name != key)


class Section(NamedTuple):
    """A page of the catalogue: metrics that are read together."""

    title: str
    about: str
    specs: tuple[MetricSpec, ...]
