"""From token ids to pieces of text that can be coloured: a character's ids stay together."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

REPLACEMENT = "\ufffd"
LONGEST = 16
"""Tokens that are tried together before a broken character is shown as it is."""


class Piece(NamedTuple):
    """Tokens ``start`` (incl.) to ``stop`` (excl.) are this text."""

    text: str
    start: int
    stop: int


def pieces(ids: Sequence[int], decode: Callable[[list[int]], str]) -> list[Piece]:
    """Cut a decoded text at token boundaries where both sides are whole characters.

    Byte-level tokenizers split CJK and emoji over several ids; such ids come as one piece. Some decoders
    drop a space at the start of a text, so each piece is what it adds behind the piece before it.
    """
    found: list[Piece] = []
    start, before = 0, 0
    while start < len(ids):
        stop = start + 1
        text = _added(ids, before, start, stop, decode)
        while text.endswith(REPLACEMENT) and stop < len(ids) and stop - start < LONGEST:
            stop += 1
            text = _added(ids, before, start, stop, decode)
        found.append(Piece(text, start, stop))
        before, start = start, stop
    return found


def _added(ids: Sequence[int], before: int, start: int, stop: int, decode: Callable[[list[int]], str]) -> str:
    if before == start:
        return decode(list(ids[start:stop]))
    prefix = decode(list(ids[before:start]))
    whole = decode(list(ids[before:stop]))
    return whole[len(prefix) :] if whole.startswith(prefix) else decode(list(ids[start:stop]))
