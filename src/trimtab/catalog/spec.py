"""What is said of a metric, once: documentation, tooltips, ``trimtab explain`` and tests are made of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

PLACEHOLDERS = {"k": r"\d+", "tokens": r"\d+"}
"""What stands for a placeholder of a key, where it is narrower than a word."""

WORD = r"[A-Za-z0-9_.-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric, or with a {placeholder} in its key one family of metrics.

    unit: of the value. formula: ASCII, with the letters of ``trimtab.types``.
    mask: what it is taken over. reduction: how parts are joined. meaning: one or two sentences.
    read_with: keys that tell what this one alone cannot. healthy: what a good run shows, in words.
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
    source: str = ""

    @property
    def is_family(self) -> bool:
        return "{" in self.key

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the keys of this family, and the key itself where it is no family."""
        parts = re.split(r"\{(\w+)\}", self.key)
        names = [PLACEHOLDERS.get(name, WORD) for name in parts[1::2]]
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
