"""An algorithm as the ``[algorithm]`` table that builds it again, every piece and number spelled out."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.build import CUSTOM, KINDS, TERMS
from trimtab.algorithms.checking import NONE
from trimtab.algorithms.parts import Parts
from trimtab.objectives.aggregate import SeqMeanTokenSumNorm, aggregate_name
from trimtab.objectives.ratio import RATIOS


def spelled_out(algorithm: Algorithm) -> dict[str, Any]:
    """The table of a custom algorithm equal to this one, for the record; absent pieces are left out.

    Raises TypeError for pieces that no recipe can name.
    """
    parts = Parts.of(algorithm)
    table: dict[str, Any] = {"name": CUSTOM}
    for slot, kinds in KINDS.items():
        piece = getattr(parts, slot)
        if piece is not None:
            table[slot] = _named(piece, kinds)
    ratio = next((name for name, known in RATIOS.items() if known is parts.ratio), None)
    aggregate = None if parts.aggregate is None else aggregate_name(parts.aggregate)
    if ratio is None or aggregate is None:
        raise TypeError(
            f"no recipe can spell the ratio {parts.ratio!r} with the aggregate {parts.aggregate!r}"
        )
    table |= {"ratio": ratio, "aggregate": aggregate, "overlong_filter": parts.overlong_filter}
    if isinstance(parts.aggregate, SeqMeanTokenSumNorm):
        table["aggregate"] = {"name": aggregate, "horizon": parts.aggregate.horizon}
    terms = {name: getattr(parts, name) for name in TERMS if getattr(parts, name) is not None}
    if terms:
        table["terms"] = {name: {"coef": coef, **_fields(term)} for name, (coef, term) in terms.items()}
    return table


def _named(piece: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    name = next((name for name, made in kinds.items() if type(piece) is made), None)
    if name is None:
        raise TypeError(f"no recipe can spell {piece!r}")
    return {"name": name, **_fields(piece)}


def _fields(piece: Any) -> dict[str, Any]:
    values = {field.name: getattr(piece, field.name) for field in dataclasses.fields(piece)}
    return {name: NONE if value is None else value for name, value in values.items()}
