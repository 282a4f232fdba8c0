"""Do sampler and trainer give the same tokens the same probabilities, and if not, in which way not?

Each cause leaves its own pattern in d = trainer - sampler, taken at a step's first update, where both should
have the same weights: another temperature scales all log-odds by one factor; another prompt (a doubled start
token) moves all answers from their first token on; re-tokenised text spoils some answers from some token on
and leaves the others exact; old weights leave no difference at the first step, and one that grows.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.case import Case
from trimtab.record.rows import RolloutRow

Values = NDArray[np.float64]

EXACT = 2e-3
"""Nats: two float32 machines on the same weights stay well below."""

LOWEST, HIGHEST = -8.0, -1e-3
"""Log-probabilities outside say nothing of a temperature: rare tokens are noise, sure ones have no odds."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One rollout at a first update. gaps: trainer - sampler over its trained tokens, ``places`` theirs."""

    row: RolloutRow
    places: NDArray[np.int64]
    sampler: Values
    trainer: Values

    @property
    def gaps(self) -> Values:
        return self.trainer - self.sampler

    @property
    def largest(self) -> float:
        return float(np.abs(self.gaps).max())


@dataclass(frozen=True, slots=True)
class Agreement:
    """A step's comparison. exact: share of rollouts without a gap above ``EXACT``; size: mean |gap|, nats.

    odds: factor by which the sampler's log-odds exceed the trainer's, and ``left``: the share of the gap
    that is still there once that factor is taken out (both None where too few tokens are undecided).
    onset: among spoiled rollouts, median place of the first gap, as a share of the answer.
    """

    step: int
    rollouts: tuple[Compared, ...]
    exact: float
    size: float
    odds: float | None
    left: float | None
    onset: float | None


def agreements(case: Case) -> tuple[Agreement, ...]:
    """One for each step whose rollouts were read and can be compared, oldest first."""
    if "agreements" not in case.memo:
        found = (_of_step(step, case.rollouts.of(step)) for step in case.rollouts.steps)
        case.memo["agreements"] = tuple(one for one in found if one is not None)
    return case.memo["agreements"]


def _of_step(step: int, rows: Sequence[RolloutRow]) -> Agreement | None:
    trained = (row for row in rows if row.tokens is not None and row.update is not None and not row.carried)
    used = [row for row in trained if row.versions]  # an import may not know them
    if not used:
        return None
    first = min(row.update for row in rows if row.update is not None)
    newest = max(span.version for row in used for span in row.versions)
    fresh = [row for row in used if row.update == first and all(v.version == newest for v in row.versions)]
    compared = tuple(one for one in map(_compare, fresh) if one is not None)
    if not compared:
        return None
    gaps = np.concatenate([one.gaps for one in compared])
    odds, left = _odds(compared)
    return Agreement(
        step=step,
        rollouts=compared,
        exact=float(np.mean([one.largest <= EXACT for one in compared])),
        size=float(np.abs(gaps).mean()),
        odds=odds,
        left=left,
        onset=_onset(compared),
    )


def _compare(row: RolloutRow) -> Compared | None:
    tokens = row.tokens
    if tokens is None or tokens.new_logprobs is None or tokens.trained is None:
        return None
    new: Any = tokens.new_logprobs.astype(np.float64)
    sampler: Any = tokens.sampler_logprobs.astype(np.float64)
    places = np.flatnonzero(tokens.trained & np.isfinite(new) & np.isfinite(sampler))
    return Compared(row, places, sampler[places], new[places]) if len(places) else None


def _odds(compared: Sequence[Compared]) -> tuple[float | None, float | None]:
    sampler = np.concatenate([one.sampler for one in compared])
    trainer = np.concatenate([one.trainer for one in compared])
    middle = (np.minimum(sampler, trainer) > LOWEST) & (np.maximum(sampler, trainer) < HIGHEST)
    x, y = _log_odds(trainer[middle]), _log_odds(sampler[middle])
    far = np.abs(x) > 0.3
    if far.sum() < 20:
        return None, None
    factor = float(np.median(y[far] / x[far]))
    before, after = np.abs(y[far] - x[far]).sum(), np.abs(y[far] - factor * x[far]).sum()
    return factor, float(after / before) if before > 0 else None


def _log_odds(logprobs: Values) -> Values:
    return logprobs - np.log(-np.expm1(logprobs))


def _onset(compared: Sequence[Compared]) -> float | None:
    spoiled = [one for one in compared if one.largest > EXACT]
    if not spoiled:
        return None
    firsts = [one.places[np.abs(one.gaps) > EXACT][0] / max(1, one.row.length) for one in spoiled]
    return float(np.median(firsts))
