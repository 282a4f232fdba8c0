"""Sets of reals as sorted, joined pieces: ``[0, 1] \\cup [1, 2]`` is ``[0, 2]``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from trimtab.rewards.mathematics.equality import Equality
from trimtab.rewards.mathematics.expressions import INFINITY, Expression, negative
from trimtab.rewards.mathematics.forms import Piece, Reals

ALL = Piece(negative(INFINITY), INFINITY, True, True)


class _Unordered(Exception):  # noqa: N818
    """Two ends that cannot be compared: they have letters, or are not real."""


def same(one: Reals, other: Reals, work: Equality) -> bool | None:
    """Equal as sets; None where ends cannot be put in order."""
    try:
        pieces = (_joined(one.pieces, work), _joined(other.pieces, work))
    except _Unordered:
        return _same_as_written(one, other, work)
    return len(pieces[0]) == len(pieces[1]) and all(
        _order(a.low, b.low, work) == 0
        and _order(a.high, b.high, work) == 0
        and (a.low_open, a.high_open) == (b.low_open, b.high_open)
        for a, b in zip(*pieces, strict=True)
    )


def intersection(sets: Sequence[Reals], work: Equality) -> Reals | None:
    """What all sets have in common; None where ends cannot be put in order."""
    try:
        common = [ALL]
        for one in sets:
            common = [
                piece for a in common for b in one.pieces if not _is_empty(piece := _meet(a, b, work), work)
            ]
        return Reals(tuple(common))
    except _Unordered:
        return None


def without(one: Reals, other: Reals, work: Equality) -> Reals | None:
    """``one`` minus ``other``."""
    kept: Reals | None = one
    for piece in other.pieces:
        rest = Reals(
            (
                Piece(ALL.low, piece.low, True, not piece.low_open),
                Piece(piece.high, ALL.high, not piece.high_open, True),
            )
        )
        kept = kept and intersection([kept, rest], work)
    return kept


def _order(one: Expression, other: Expression, work: Equality) -> int:
    found = work.compare(one, other)
    if found is None:
        raise _Unordered
    return found


def _meet(a: Piece, b: Piece, work: Equality) -> Piece:
    low, high = _order(a.low, b.low, work), _order(a.high, b.high, work)
    return Piece(
        a.low if low > 0 else b.low,
        a.high if high < 0 else b.high,
        a.low_open if low > 0 else b.low_open if low < 0 else a.low_open or b.low_open,
        a.high_open if high < 0 else b.high_open if high > 0 else a.high_open or b.high_open,
    )


def _is_empty(piece: Piece, work: Equality) -> bool:
    order = _order(piece.low, piece.high, work)
    return order > 0 or (order == 0 and (piece.low_open or piece.high_open))


def _joined(pieces: Sequence[Piece], work: Equality) -> list[Piece]:
    """Sorted, without empty pieces, overlapping and touching ones joined."""

    def before(a: Piece, b: Piece) -> int:
        return _order(a.low, b.low, work) or a.low_open - b.low_open

    joined: list[Piece] = []
    for piece in sorted((p for p in pieces if not _is_empty(p, work)), key=cmp_to_key(before)):
        last = joined[-1] if joined else None
        gap = _order(piece.low, last.high, work) if last is not None else 1
        if last is None or gap > 0 or (gap == 0 and piece.low_open and last.high_open):
            joined.append(piece)
            continue
        end = _order(piece.high, last.high, work)
        high_open = (
            last.high_open if end < 0 else piece.high_open if end > 0 else last.high_open and piece.high_open
        )
        joined[-1] = Piece(last.low, last.high if end < 0 else piece.high, last.low_open, high_open)
    return joined


def _same_as_written(one: Reals, other: Reals, work: Equality) -> bool | None:
    """Piece by piece in the order given, for ends with letters in them."""
    if len(one.pieces) != len(other.pieces):
        return None
    verdicts = [
        work.equal(x, y)
        for a, b in zip(one.pieces, other.pieces, strict=True)
        for x, y in ((a.low, b.low), (a.high, b.high))
    ]
    bounds = [
        (a.low_open, a.high_open) == (b.low_open, b.high_open)
        for a, b in zip(one.pieces, other.pieces, strict=True)
    ]
    if all(verdicts) and all(bounds):
        return True
    return None if None in verdicts else False
