"""What loading found: the problems that make rows unusable, and the report of a successful load."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.errors import DataError
from trimtab.types import Prompt

MOST_LISTED = 20
"""Row numbers shown of one kind of problem; the rest is counted."""


@dataclass(slots=True)
class Problems:
    """Unusable rows by kind, gathered over the whole load so that one error tells all of them."""

    rows: dict[tuple[str, str], dict[str, list[int]]] = field(default_factory=dict)

    def add(self, what: str, origin: str, number: int, remedy: str) -> None:
        """Row ``number`` of ``origin`` is unusable because ``what``; ``remedy`` says what to do."""
        self.rows.setdefault((what, remedy), {}).setdefault(origin, []).append(number)

    @property
    def count(self) -> int:
        """Unusable rows, a row with two problems counted once."""
        return len(
            {(o, n) for places in self.rows.values() for o, numbers in places.items() for n in numbers}
        )

    @staticmethod
    def raise_together(*problems: Problems) -> None:
        """Raises one DataError listing every kind of problem with its row numbers, if there is any."""
        lines = [line for each in problems for line in each.lines()]
        if lines:
            count = sum(each.count for each in problems)
            told = "1 row cannot be used" if count == 1 else f"{count} rows cannot be used"
            raise DataError("\n".join([f"{told}, and nothing was started:", *lines]))

    def lines(self) -> Iterator[str]:
        """One line a kind: ``train.jsonl row 7: no answer (...)``."""
        for (what, remedy), places in self.rows.items():
            where = "; ".join(f"{origin} {listed(numbers)}" for origin, numbers in places.items())
            yield f"  {where}: {what}; {remedy}"


def listed(numbers: Sequence[int]) -> str:
    """``row 7``, ``rows 7, 9`` or ``rows 1, 2, ... and 93 more``."""
    unique = sorted(set(numbers))
    shown = ", ".join(map(str, unique[:MOST_LISTED]))
    more = f" and {len(unique) - MOST_LISTED} more" if len(unique) > MOST_LISTED else ""
    return f"{'row' if len(unique) == 1 else 'rows'} {shown}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How the prompts were read.

    schema: the chosen row format of the training rows and why, None for a task. rows: rows read, training and
    held-out. merged: rows of either that repeat an earlier one; dropped: unusable rows left out
    (``data.on_bad``, ``data.on_long``); leaked: training prompts left out because they are
    held out. warnings: sentences that a user should read. places: prompt id -> ``train.jsonl row 7``, the row
    that it was read from.
    """

    schema: tuple[str, str] | None
    rows: tuple[int, int]
    merged: tuple[int, int]
    dropped: int
    leaked: int
    warnings: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict[str, str])

    def lines(self, train: Sequence[Prompt], held_out: Sequence[Prompt], shown: int = 3) -> Iterator[str]:
        """The report in plain lines: counts, lengths, warnings, and the first prompts as rendered."""
        rows = f"{self.rows[0]} + {self.rows[1]} rows"
        yield f"prompts: {len(train)} for training, {len(held_out)} held out, from {rows}"
        if self.schema is not None:
            yield f"schema: {self.schema[0]} ({self.schema[1]})"
        lengths = np.array([len(prompt.token_ids) for prompt in train])
        low, middle, high = np.quantile(lengths, (0.0, 0.5, 1.0)).astype(int)
        yield f"prompt tokens: {low} shortest, {middle} median, {high} longest"
        yield from (f"warning: {warning}" for warning in self.warnings)
        for prompt in train[:shown]:
            size = f"{len(prompt.token_ids)} tokens"
            yield f"prompt {prompt.id} ({size}, answer {prompt.answer!r}): {prompt.text!r}"
