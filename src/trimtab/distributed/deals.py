"""Draws cut into deals, and who works at which: every draw gives one group, however often it is dealt."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.types import Draw


@dataclass(slots=True, eq=False)
class Deal:
    """Draws that one engine is given together. ``missing`` are the keys that have no group yet."""

    draws: tuple[Draw, ...]
    missing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.missing = {draw.key for draw in self.draws}

    def bare(self) -> list[Draw]:
        """The draws without gold answers and columns, which no engine needs."""
        return [
            Draw(dataclasses.replace(draw.prompt, answer=None, messages=None, meta={}), draw.number)
            for draw in self.draws
        ]


class Deals:
    """The deals of one request: waiting, out, or done.

    The cut depends on counts alone, and a deal that comes back is dealt again as a whole. So an engine whose
    numbers depend, in their last bits, on the company of a row gives the same bits whoever works at the
    deal and whatever died meanwhile; groups that had come already are not taken a second time.
    """

    def __init__(self, draws: Sequence[Draw], size: int) -> None:
        size = max(1, size)
        cut = [Deal(tuple(draws[i : i + size])) for i in range(0, len(draws), size)]
        self.waiting = deque(cut)
        self.draws = {draw.key: draw for draw in draws}
        self.left = len(self.draws)

    def take(self) -> Deal:
        return self.waiting.popleft()

    def arrived(self, deal: Deal, key: str) -> Draw | None:
        """The draw that this group answers; None where it has one already."""
        if key not in deal.missing:
            return None
        deal.missing.discard(key)
        self.left -= 1
        return self.draws[key]

    def back(self, deal: Deal) -> int:
        """A deal whose engine is gone waits again, first of all. Returns how many draws it still owes."""
        if deal.missing:
            self.waiting.appendleft(deal)
        return len(deal.missing)
