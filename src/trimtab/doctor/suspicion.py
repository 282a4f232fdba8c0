"""A likely cause with what speaks for it: tests that the record itself can answer put the causes in order."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.doctor.case import Case
from trimtab.record.findings import Cause

CLEARED, UNTESTED, LIKELY, SHOWN = 0.0, 0.2, 0.6, 0.95
"""Scores: the record speaks against it; it cannot tell; it fits; it shows it directly."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """score in [0, 1]: how much the record speaks for the cause."""

    score: float
    cause: Cause


Suspect = Callable[[Case], Suspicion]


def suspicion(score: float, name: str, what: str, *, test: str, change: str) -> Suspicion:
    """A cause with its score, cut to [0, 1]."""
    return Suspicion(min(max(score, 0.0), 1.0), Cause(name=name, what=what, test=test, change=change))


def blame(case: Case, suspects: Sequence[Suspect], *, keep: int = 4) -> tuple[Suspicion, ...]:
    """The suspects, likeliest first; equals stay in the order given, the cleared ones are left out.

    Where the record clears every one of them the first stays, as the usual cause.
    """
    judged = sorted((suspect(case) for suspect in suspects), key=lambda one: -one.score)
    standing = [one for one in judged if one.score > CLEARED]
    return tuple((standing or judged[:1])[:keep])


def causes(found: Sequence[Suspicion]) -> tuple[Cause, ...]:
    """Without their scores, as a finding holds them."""
    return tuple(one.cause for one in found)


def set_to(case: Case, path: str, value: object) -> str:
    """``path = value (now x)``: what to change, against the run's own setting."""
    now = case.setup.setting(path)
    return f"{path} = {plain(value)}" + ("" if now is None else f" (now {plain(now)})")


def plain(value: object) -> str:
    """A number as a person writes it: 3e-05, 0.25, 48."""
    if isinstance(value, float):
        return f"{value:.2g}" if value and abs(value) < 1e-2 else f"{value:g}"
    return str(value)


def rounded(value: float) -> float:
    """To one significant digit, 1, 2, 3 or 5: the steps in which settings are tried."""
    if value <= 0.0:
        return value
    power = 10.0 ** math.floor(math.log10(value))
    return min((1.0, 2.0, 3.0, 5.0, 10.0), key=lambda digit: abs(math.log(value / power / digit))) * power


def share(value: float) -> str:
    """A share as a percentage, with a decimal where it is small."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"
