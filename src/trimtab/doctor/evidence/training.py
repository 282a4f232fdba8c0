"""What the updates did with each recorded token: masks, weights, ratios and the box around them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.doctor.case import Case
from trimtab.record.rows import RolloutRow, TokenRow
from trimtab.types import Finish

MARGIN = 1e-3
"""How far beyond a bound a ratio must lie before its gate is judged; rounding decides nearer to it."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Rollouts that ended by themselves: how many, and those of them whose last token was not trained on."""

    stopped: int
    untrained: tuple[RolloutRow, ...]

    @property
    def share(self) -> float:
        return len(self.untrained) / self.stopped if self.stopped else 0.0


def ends(case: Case) -> Ends:
    """Rollouts used by an update that stopped by themselves, and whether their last token has a loss."""
    if "ends" not in case.memo:
        stopped = [row for row in case.rollouts.all if row.finish is Finish.STOP and row.trained_tokens]
        cut = tuple(row for row in stopped if _end_is_cut(row))
        case.memo["ends"] = Ends(len(stopped), cut)
    return case.memo["ends"]


def _end_is_cut(row: RolloutRow) -> bool:
    tokens = row.tokens
    if tokens is not None and tokens.trained is not None:
        return bool(len(tokens.trained)) and not tokens.trained[-1] and bool(tokens.trained.any())
    return row.trained_tokens == row.length - 1


@dataclass(frozen=True, slots=True)
class Uneven:
    """An update whose rollouts do not weigh what the aggregation says: largest over smallest share, - 1."""

    step: int
    update: int
    spread: float
    rows: tuple[RolloutRow, ...]


def uneven_updates(case: Case, *, beyond: float = 0.02) -> tuple[int, tuple[Uneven, ...]]:
    """(updates that could be judged, those whose weights spread more than ``beyond``)."""
    if "uneven" not in case.memo:
        case.memo["uneven"] = tuple(_weighed(case))
    judged: tuple[Uneven, ...] = case.memo["uneven"]
    return len(judged), tuple(one for one in judged if one.spread > beyond)


def _weighed(case: Case) -> Iterator[Uneven]:
    aggregate = case.setup.aggregate
    if aggregate is None:
        return
    for step in case.rollouts.steps:
        updates: dict[int, list[RolloutRow]] = defaultdict(list)
        for row in case.rollouts.of(step):
            if row.update is not None and row.weight is not None and row.trained_tokens:
                updates[row.update].append(row)
        for update, rows in updates.items():
            shares = [row.weight / _due(row, rows, aggregate) for row in rows if row.weight]
            if len(shares) > 1:
                yield Uneven(step, update, max(shares) / min(shares) - 1.0, tuple(rows))


def _due(row: RolloutRow, rows: list[RolloutRow], aggregate: str) -> float:
    """What the row weighs in proportion to the others of its update."""
    own = float(row.trained_tokens or 0)
    if aggregate == "seq-mean-token-mean":
        return 1.0
    if aggregate == "prompt-mean":
        return own / sum(other.trained_tokens or 0 for other in rows if other.group == row.group)
    return own


@dataclass(frozen=True, slots=True)
class Outside:
    """A trained token beyond the bound of its advantage's side: where it is, its ratio and its gate."""

    row: RolloutRow
    place: int
    ratio: float
    gate: float


def outside_box(case: Case) -> tuple[Outside, ...]:
    """Tokens that the run's clip should have cut: A > 0 above 1 + high, A < 0 below 1 - low."""
    if "outside" not in case.memo:
        case.memo["outside"] = tuple(_outside(case))
    return case.memo["outside"]


def _outside(case: Case) -> Iterator[Outside]:
    if case.setup.box is None:
        return
    low, high = case.setup.box
    for row in case.rollouts.all:
        tokens = row.tokens
        if tokens is None or tokens.ratios is None or tokens.gates is None or tokens.advantages is None:
            continue
        ratios, advantages = tokens.ratios, tokens.advantages
        beyond = (advantages > 0) & (ratios > 1.0 + high + MARGIN)
        beyond |= (advantages < 0) & (ratios < 1.0 - low - MARGIN)
        if tokens.trained is not None:
            beyond &= tokens.trained
        for place in np.flatnonzero(beyond):
            yield Outside(row, int(place), float(ratios[place]), float(tokens.gates[place]))


@dataclass(frozen=True, slots=True)
class Moved:
    """Medians over rollouts of their largest token, in nats: how far the policy had moved from the sampler's
    probabilities, from the recorded old ones, and by the ratio as the surrogate used it (None: not recorded).
    At a step's first update all should be 0.
    """

    rollouts: int
    from_sampler: float
    from_old: float
    by_ratio: float | None


def moved(case: Case, *, first: bool) -> Moved | None:
    """Over the rollouts of each step's first update, or of its later ones; None where none has tokens."""
    key = f"moved {first}"
    if key not in case.memo:
        case.memo[key] = _moved(case, first)
    return case.memo[key]


def _moved(case: Case, first: bool) -> Moved | None:
    from_sampler, from_old, by_ratio = list[float](), list[float](), list[float]()
    for step in case.rollouts.steps:
        rows = [row for row in case.rollouts.of(step) if row.update is not None]
        opening = min((row.update for row in rows if row.update is not None), default=None)
        for row in rows:
            if row.tokens is None or row.carried or (row.update == opening) is not first:
                continue
            gaps = _gaps(row.tokens)
            if gaps is not None:
                from_sampler.append(gaps[0])
                from_old.append(gaps[1])
                by_ratio += gaps[2:]
    if not from_old:
        return None
    ratio = float(np.median(by_ratio)) if by_ratio else None
    return Moved(len(from_old), float(np.median(from_sampler)), float(np.median(from_old)), ratio)


def _gaps(tokens: TokenRow) -> tuple[float, ...] | None:
    if tokens.new_logprobs is None or tokens.old_logprobs is None or tokens.trained is None:
        return None
    seen = tokens.trained & np.isfinite(tokens.new_logprobs)
    if not seen.any():
        return None
    new = tokens.new_logprobs[seen].astype(np.float64)
    sampler, old = tokens.sampler_logprobs[seen], tokens.old_logprobs[seen]
    gaps = float(np.abs(new - sampler).max()), float(np.abs(new - old).max())
    if tokens.ratios is None:
        return gaps
    ratios = tokens.ratios[seen]
    return (*gaps, float(np.abs(np.log(np.maximum(ratios, 1e-30))).max()))
