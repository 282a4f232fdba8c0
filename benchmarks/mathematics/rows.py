"""One labelled pair, and the split by hash."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANDMADE = Path(__file__).with_name("handmade.jsonl")

Meaning = Mapping[str, Any]
"""What an answer means, in sympy's words: {"value": "sqrt(2)/2"}, {"set": [...]}, ... (see proof.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A gold answer, a response, and the label. ``meanings`` (of gold and answer) prove a generated label."""

    kind: str
    gold: str
    response: str
    equivalent: bool
    origin: str
    meanings: tuple[Meaning, Meaning] | None = None

    @property
    def part(self) -> str:
        """``tuning`` (two fifths) or ``scored``, fixed by the row's own text."""
        text = "\0".join((self.kind, self.gold, self.response))
        return "tuning" if hashlib.sha256(text.encode()).digest()[0] % 5 < 2 else "scored"


def handmade() -> list[Row]:
    """The hand-written rows."""
    lines = HANDMADE.read_text(encoding="utf-8").splitlines()
    return [Row(**json.loads(line), origin="handmade") for line in lines]
