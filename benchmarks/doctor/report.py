"""The benchmark's tables, in Markdown, and everything behind them as JSON."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks.doctor.score import Card, Count, Row, wilson

HEADINGS = (
    ("found", "fault found"),
    ("first", "cause right"),
    ("precision", "alarms that were right"),
    ("critical_false", "healthy runs with a critical alarm"),
    ("false", "healthy runs with a warning or more"),
)


def with_interval(counted: Count) -> str:
    """``58/60 = 0.97 [0.89, 0.99]``."""
    if not counted.tries:
        return "none"
    low, high = wilson(counted)
    return f"{counted} = {counted.share:.2f} [{low:.2f}, {high:.2f}]"


def totals(cards: Sequence[Card]) -> str:
    """One line a tool."""
    lines = [
        "| | " + " | ".join(title for _, title in HEADINGS) + " |",
        "|---|" + "---|" * len(HEADINGS),
    ]
    for card in cards:
        cells = [with_interval(getattr(card, name)) for name, _ in HEADINGS]
        lines.append(f"| {card.tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_fault(cards: Sequence[Card]) -> str:
    """One line a fault: found / cause right / precision, for each tool."""
    lines = [
        "| fault | " + " | ".join(card.tool for card in cards) + " |",
        "|---|" + "---|" * len(cards),
    ]
    for place, row in enumerate(cards[0].rows):
        cells = [_cell(card.rows[place]) for card in cards]
        lines.append(f"| {row.cause} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    return f"{row.found}, {row.first}, {row.precision if row.precision.tries else 'silent'}"


def missed(card: Card) -> str:
    """The runs in which our doctor did not find the fault, or did not blame it first, and false alarms."""
    lines: list[str] = []
    for one in card.runs:
        said = ", ".join(f"{check} ({severity})" for check, severity in one.alarms) or "nothing"
        if one.cause is not None and not one.first:
            fate = "found, but not blamed first" if one.found else "missed"
            lines.append(f"- `{one.run}`: {fate}; first cause {one.named or 'none'}; said {said}")
        elif one.cause is None and one.alarmed:
            lines.append(f"- `{one.run}`: false alarm; first cause {one.named or 'none'}; said {said}")
    return "\n".join(lines) or "None."


def as_json(cards: Sequence[Card], part: str) -> dict[str, Any]:
    """Counts, intervals, and what was said of every run."""

    def told(counted: Count) -> dict[str, Any]:
        low, high = wilson(counted)
        share = round(counted.share, 4) if counted.tries else None
        return {"hits": counted.hits, "tries": counted.tries, "share": share, "interval": [low, high]}

    return {
        "part": part,
        "tools": {
            card.tool: {
                **{name: told(getattr(card, name)) for name, _ in HEADINGS},
                "faults": {
                    row.cause: {
                        "found": told(row.found),
                        "first": told(row.first),
                        "precision": told(row.precision),
                    }
                    for row in card.rows
                },
                "runs": [dataclasses.asdict(one) for one in card.runs],
            }
            for card in cards
        },
    }
