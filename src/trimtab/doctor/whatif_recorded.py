"""What the run itself did with its tokens, in the form of ``whatif.reweigh``, and both counted up."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.doctor.whatif import Reweighed, ReweighedRollout, whole_of
from trimtab.doctor.whatif_batch import NO_TOKENS, graded_rows, has_tokens
from trimtab.errors import DataError
from trimtab.record.rows import RolloutRow, TokenRow


def as_recorded(rollouts: Sequence[RolloutRow], name: str) -> Reweighed:
    """Ratios, gates and weights as the run wrote them; shares are |weight * gate * ratio * A| over their sum.

    Raises: DataError where no rollout has these values.
    """
    rows = graded_rows(rollouts)
    found = {row.key: part for row in rows if (part := _of_row(row)) is not None}
    if not found:
        raise DataError(NO_TOKENS)
    totals = _totals(found.values())
    shared = {
        key: ReweighedRollout(
            key=key,
            update=part.update,
            trained_T=part.trained_T,
            advantages_T=part.advantages_T,
            ratio_T=part.ratio_T,
            gate_T=part.gate_T,
            weight_T=part.weight_T,
            gradient_share_T=part.gradient_share_T / (totals[part.update] or 1.0),
        )
        for key, part in found.items()
    }
    return whole_of(rows, name, shared, "recorded")


def _of_row(row: RolloutRow) -> ReweighedRollout | None:
    """With the plain product in place of a share; None without the columns."""
    tokens: TokenRow | None = row.tokens if has_tokens(row) else None
    if tokens is None or tokens.ratios is None or tokens.gates is None or tokens.weights is None:
        return None
    assert tokens.trained is not None
    assert tokens.advantages is not None
    assert row.update is not None
    trained = tokens.trained.astype(np.bool_)
    advantages = np.where(trained, tokens.advantages, 0.0)
    weights = np.where(trained, tokens.weights, 0.0)
    ratios, gates = tokens.ratios.astype(np.float64), tokens.gates.astype(np.float64)
    still = (weights == 0) | (advantages == 0)
    return ReweighedRollout(
        key=row.key,
        update=row.update,
        trained_T=trained,
        advantages_T=advantages,
        ratio_T=ratios,
        gate_T=gates,
        weight_T=weights,
        gradient_share_T=np.where(still, 0.0, np.abs(weights * gates * ratios * advantages)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One algorithm on a step, in counts over the recorded tokens.

    moved: tokens with an advantage and a weight, and a known gate; cut and damped are among them.
    answers: rollouts with such a token; answers_cut: all of theirs cut; answers_touched: any cut or damped.
    mass: sum |gate * A| / sum |A| over ``moved``, 1 without a trust region. positive: share of the
    gradient on tokens with A > 0. elsewhere: share of an update's gradient that lies on other tokens than in
    the run, in [0, 1]; None where one of the two has no gradient at all.
    """

    moved: int
    cut: int
    damped: int
    answers: int
    answers_cut: int
    answers_touched: int
    mass: float | None
    positive: float | None
    elsewhere: float | None


def tally(found: Reweighed, recorded: Reweighed | None = None) -> Tally:
    """``found`` counted up, against what the run did where that is given."""
    parts = [part for part in found.rollouts.values() if part.moved_T.any()]
    known = [part.moved_T & ~np.isnan(part.gate_T) for part in parts]
    absolute = sum(float(np.abs(p.advantages_T[k]).sum()) for p, k in zip(parts, known, strict=True))
    gated = sum(
        float(np.abs(p.advantages_T[k] * p.gate_T[k]).sum()) for p, k in zip(parts, known, strict=True)
    )
    total = sum(part.share for part in parts)
    positive = sum(float(np.nansum(p.gradient_share_T[p.advantages_T > 0])) for p in parts)
    return Tally(
        moved=sum(int(k.sum()) for k in known),
        cut=sum(int(part.cut_T.sum()) for part in parts),
        damped=sum(int(part.damped_T.sum()) for part in parts),
        answers=len(parts),
        answers_cut=sum(part.cut_whole for part in parts),
        answers_touched=sum(bool((part.cut_T | part.damped_T).any()) for part in parts),
        mass=gated / absolute if absolute else None,
        positive=positive / total if total else None,
        elsewhere=None if recorded is None else _elsewhere(found, recorded),
    )


def _elsewhere(found: Reweighed, recorded: Reweighed) -> float | None:
    """1/2 sum |share - share| over an update's tokens; mean over the updates where both have a gradient."""
    apart: dict[int, float] = {}
    here, there = _totals(found.rollouts.values()), _totals(recorded.rollouts.values())
    for key, part in found.rollouts.items():
        if key in recorded.rollouts and here[part.update] > 0 and there.get(part.update, 0.0) > 0:
            gap = np.abs(part.gradient_share_T - recorded.rollouts[key].gradient_share_T)
            apart[part.update] = apart.get(part.update, 0.0) + 0.5 * float(np.nansum(gap))
    return sum(apart.values()) / len(apart) if apart else None


def _totals(parts: Iterable[ReweighedRollout]) -> dict[int, float]:
    totals: dict[int, float] = {}
    for part in parts:
        totals[part.update] = totals.get(part.update, 0.0) + part.share
    return totals
