"""Multiple choice: ``B``, ``(B)``, ``\\textbf{(B)}\\ 12``, ``B. the blue one``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from typing import NamedTuple

from trimtab.rewards.mathematics.normal import TEXT_BEGINS, TEXT_ENDS, normal, undressed
from trimtab.rewards.mathematics.reading import read
from trimtab.rewards.mathematics.tokens import Unreadable

_ALONE = re.compile(r"(?:(?:option|choice|answer)\s+)?\(?\s*([A-J])\s*\)?\s*[.:)]?", re.IGNORECASE)
_LABEL = re.compile(r"(?:\(\s*([A-J])\s*\)|([A-J])\s*[.:)])\s*(\S.*)")
_ANOTHER = re.compile(r"(?<![A-Za-z])[A-J](?![A-Za-z])")
_DENIAL = re.compile(r"\b(?:not|or|and|wrong|incorrect|isn't|but|nor|neither)\b", re.IGNORECASE)


class Choice(NamedTuple):
    """A letter, and the text of its option where that is given too."""

    letter: str
    option: str = ""


def choice_of(text: str) -> Choice | None:
    """The one letter that an answer chooses; None when it is no choice, or names a second letter."""
    spelling = undressed(normal(text).replace(TEXT_BEGINS, " ").replace(TEXT_ENDS, " "))
    if found := _ALONE.fullmatch(spelling):
        return Choice(found[1].upper())
    if found := _LABEL.fullmatch(spelling):
        option = found[3].strip()
        if not _ANOTHER.search(option) and not _DENIAL.search(option) and _is_readable(option):
            return Choice(found[1] or found[2], option)
    return None


def _is_readable(option: str) -> bool:
    try:
        read(option)
    except Unreadable:
        return False
    return True


def gold_choice(text: str) -> Choice | None:
    """The choice that a gold answer is. A small letter alone is a variable, not a choice."""
    choice = choice_of(text)
    return None if choice is None or re.fullmatch(r"\W*[a-j]\W*", text) else choice
