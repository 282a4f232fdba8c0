"""Is the loss that was minimised the one that the recorded weights and advantages make?

At ratio 1 the policy's loss is - sum of weight * advantage (times the surrogate's value there). Within a step
ratios leave 1 by little, so the recorded loss stays close to that, unless tokens were weighed differently.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.case import Case
from trimtab.doctor.statistics import mad
from trimtab.objectives.surrogate import Clip, DualClip, SignDecoupledClip, SoftGate, Unclipped
from trimtab.record.rows import RolloutRow

CALM = 3e-3
"""Nats a token: where a step moves the policy further, ratios leave 1 by more than this test allows for."""

WHOLE = 1e-3
"""How far the weights of an update's rows may be from 1 in sum; more means that rows are missing."""


@dataclass(frozen=True, slots=True)
class LossGap:
    """Recorded minus expected policy loss, by step. own: how much the gap varies; usual: how much ratios
    near 1 could make it vary, from the KL to the old policy and the advantages' size.
    """

    steps: tuple[int, ...]
    gaps: NDArray[np.float64]
    own: float
    usual: float


def loss_gap(case: Case) -> LossGap | None:
    """None where fewer than four steps have all that is needed."""
    if "loss gap" not in case.memo:
        case.memo["loss gap"] = _loss_gap(case)
    return case.memo["loss gap"]


def _loss_gap(case: Case) -> LossGap | None:
    if case.setup.aggregate not in ("token-mean", "seq-mean-token-mean", "prompt-mean"):
        return None
    if case.setup.number("trainer.epochs") not in (None, 1.0):
        return None
    steps, gaps = list[int](), list[float]()
    for step in case.rollouts.steps:
        loss, expected = case.history.value(step, "loss/policy"), _expected(case, case.rollouts.of(step))
        calm = (case.history.value(step, "kl/old_k3") or 0.0) < CALM
        if loss is not None and expected is not None and calm:
            steps.append(step)
            gaps.append(loss - expected)
    if len(gaps) < 4:
        return None
    found = np.array(gaps)
    moved = np.sqrt(2.0 * max(case.median("kl/old_k3"), 0.0)) * case.median("advantage/absolute", 1.0)
    return LossGap(tuple(steps), found, max(mad(found), abs(float(np.median(found)))), float(moved))


def _expected(case: Case, rows: Sequence[RolloutRow]) -> float | None:
    """Mean over the step's updates of the loss at ratio 1; None where a row is missing."""
    updates: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        if row.update is None:
            continue
        factor = _value_at_one(case, row.advantage or 0.0)
        if factor is None or row.weight is None:
            return None
        updates.setdefault(row.update, []).append((row.weight, factor * (row.advantage or 0.0)))
    if not updates or any(abs(sum(w for w, _ in own) - 1.0) > WHOLE for own in updates.values()):
        return None
    return -float(np.mean([sum(weight * pull for weight, pull in own) for own in updates.values()]))


def _value_at_one(case: Case, advantage: float) -> float | None:
    """The surrogate's value at ratio 1 over the advantage; None where it is not made of them alone."""
    match case.setup.parts.surrogate if case.setup.parts else None:
        case Clip() | DualClip() | Unclipped():
            return 1.0
        case SoftGate(tau_pos, tau_neg):
            return 2.0 / (tau_pos if advantage > 0 else tau_neg)
        case SignDecoupledClip() as clip:
            return 1.0 if advantage > 0 else clip.alpha
        case _:
            return None
