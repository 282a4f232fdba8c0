"""Error rates by kind as a Markdown table: counts, shares, and Wilson's 95% intervals."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.mathematics.graders import Verdict
from benchmarks.mathematics.rows import Row

from trimtab.evaluation.estimators import wilson


class Rate(NamedTuple):
    """``wrong`` of ``rows`` rows were graded against their label."""

    wrong: int
    rows: int

    def __add__(self, other: object) -> Rate:
        assert isinstance(other, Rate)
        return Rate(self.wrong + other.wrong, self.rows + other.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "none"
        low, high = wilson(self.wrong / self.rows, self.rows)
        return f"{self.wrong}/{self.rows} ({100 * low:.1f} to {100 * high:.1f}%)"


class Rates(NamedTuple):
    """Wrong answers accepted, right answers refused."""

    false_positives: Rate
    false_negatives: Rate


def measure(rows: Sequence[Row], grader: Verdict) -> dict[str, Rates]:
    """The rates of one grader by kind, and of ``all``."""
    accepted = [(row, grader(row.gold, row.response)) for row in rows]
    rates: dict[str, Rates] = {}
    for kind in [*dict.fromkeys(row.kind for row in rows), "all"]:
        here = [(row, verdict) for row, verdict in accepted if kind in (row.kind, "all")]
        unequal = [verdict for row, verdict in here if not row.equivalent]
        equal = [verdict for row, verdict in here if row.equivalent]
        rates[kind] = Rates(Rate(sum(unequal), len(unequal)), Rate(len(equal) - sum(equal), len(equal)))
    return rates


def as_table(measured: Mapping[str, Mapping[str, Rates]]) -> str:
    """One row a kind; for each grader false positives and false negatives."""
    names = list(measured)
    head = " | ".join(f"{name}: wrong accepted | right refused" for name in names)
    lines = [f"| kind | {head} |", "|---" * (1 + 2 * len(names)) + "|"]
    for kind in measured[names[0]]:
        cells = " | ".join(
            f"{measured[name][kind].false_positives} | {measured[name][kind].false_negatives}"
            for name in names
        )
        mark = "**" if kind == "all" else ""
        lines.append(f"| {mark}{kind}{mark} | {cells} |")
    return "\n".join(lines)
