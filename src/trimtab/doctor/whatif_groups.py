"""What other group sizes would have made of the recorded pass rates."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trimtab.errors import DataError
from trimtab.evaluation.useful import UsefulShare, useful_share
from trimtab.record.rows import RolloutRow
from trimtab.types import UNIFORM_TOLERANCE

SIZES = (2, 4, 8, 16, 32)


@dataclass(slots=True)
class GroupCounts:
    """Right and graded answers of each group. A partial grade counts as not right, and is counted."""

    right: list[int] = field(default_factory=list[int])
    graded: list[int] = field(default_factory=list[int])
    partial: int = 0
    ungraded: int = 0

    def add(self, rows: Iterable[RolloutRow]) -> None:
        """The groups of one step, trained on or dropped; each group is in one step's file only."""
        groups: dict[str, list[RolloutRow]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        for members in groups.values():
            values = [row.value for row in members if row.value is not None]
            self.ungraded += len(members) - len(values)
            self.partial += sum(UNIFORM_TOLERANCE < value < 1.0 - UNIFORM_TOLERANCE for value in values)
            if values:
                self.right.append(sum(value >= 1.0 - UNIFORM_TOLERANCE for value in values))
                self.graded.append(len(values))

    @property
    def size(self) -> int:
        """Answers of the commonest group."""
        return max(set(self.graded), key=self.graded.count) if self.graded else 0


def shares_by_size(counts: GroupCounts, sizes: Sequence[int] = SIZES) -> list[UsefulShare]:
    """Ascending, the size that was sampled among them. Raises DataError where no answer is graded."""
    if not counts.graded:
        raise DataError("no group of these steps has a graded answer, so there is no pass rate to go by")
    wanted = sorted({*(size for size in sizes if size > 1), counts.size} - {1})
    return useful_share(counts.right, counts.graded, wanted)
