"""Rollouts that show a symptom, as exhibits: a few, the plainest first."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.evidence.agreement import Agreement
from trimtab.doctor.evidence.training import Outside
from trimtab.record.findings import Exhibit
from trimtab.record.rows import RolloutRow
from trimtab.types import Finish

SHOWN = 5
"""Exhibits a finding carries at most."""

AROUND = 4
"""Tokens shown on either side of the one that matters."""


def whole(rows: Iterable[RolloutRow], why: Callable[[RolloutRow], str] | str) -> tuple[Exhibit, ...]:
    """These rollouts, all of their tokens."""
    chosen = list(rows)[:SHOWN]
    return tuple(
        Exhibit(
            step=row.step,
            rollout=row.key,
            why=why if isinstance(why, str) else why(row),
            tokens=(0, row.length),
        )
        for row in chosen
    )


def ends_of(rows: Iterable[RolloutRow], why: str, count: int = 1) -> tuple[Exhibit, ...]:
    """The last ``count`` tokens of these rollouts."""
    chosen = list(rows)[:SHOWN]
    return tuple(
        Exhibit(step=r.step, rollout=r.key, why=why, tokens=(max(0, r.length - count), r.length))
        for r in chosen
    )


def latest(case: Case, chosen: Callable[[RolloutRow], bool]) -> list[RolloutRow]:
    """The rows that fit, newest step first, at most one a group so that the exhibits differ."""
    found: dict[str, RolloutRow] = {}
    for step in reversed(case.rollouts.steps):
        for row in case.rollouts.of(step):
            if chosen(row):
                found.setdefault(row.group, row)
        if len(found) >= SHOWN:
            break
    return list(found.values())


def truncated(case: Case) -> tuple[Exhibit, ...]:
    """The last tokens of answers that the limit cut off."""
    rows = latest(case, lambda row: row.finish is Finish.LENGTH)
    return ends_of(rows, "cut off at the limit, in the middle of the answer", count=12)


def ungraded(case: Case) -> tuple[Exhibit, ...]:
    """Answers without a grade, with what their grader said."""
    rows = latest(case, lambda row: row.value is None)
    return whole(rows, lambda row: f"{row.grade}: {row.detail[:120]}" if row.detail else str(row.grade))


def extreme_lengths(case: Case, *, longest: bool) -> tuple[Exhibit, ...]:
    """The longest or shortest answers of the last step that has rollouts."""
    rows = [row for step in case.rollouts.steps[-1:] for row in case.rollouts.of(step)]
    rows.sort(key=lambda row: row.length, reverse=longest)
    one_a_group = {row.group: row for row in reversed(rows)}
    chosen = [row for row in rows if one_a_group[row.group] is row]
    return whole(chosen, lambda row: f"{row.length} tokens, {_graded(row)}")


def _graded(row: RolloutRow) -> str:
    if row.grade is not None:
        return f"graded {row.grade}"
    return "no grade known" if row.reward is None else f"reward {row.reward:.3g}"


def outside(found: Iterable[Outside]) -> tuple[Exhibit, ...]:
    """The tokens furthest outside the box, with a few around each."""
    chosen = sorted(found, key=lambda one: -abs(np.log(max(one.ratio, 1e-9))))[:SHOWN]
    return tuple(_token(one.row, one.place, f"ratio {one.ratio:.3g}, gate {one.gate:.3g}") for one in chosen)


def far_tokens(case: Case) -> tuple[Exhibit, ...]:
    """The tokens whose ratio is furthest from 1, newest steps first."""
    found: list[tuple[float, RolloutRow, int, float]] = []
    for step in reversed(case.rollouts.steps[-3:]):
        for row in case.rollouts.of(step):
            if row.tokens is None or row.tokens.ratios is None or row.tokens.trained is None:
                continue
            ratios = np.where(row.tokens.trained & np.isfinite(row.tokens.ratios), row.tokens.ratios, 1.0)
            moved = np.abs(np.log(np.maximum(ratios, 1e-12)))
            place = int(moved.argmax())
            found.append((float(moved[place]), row, place, float(ratios[place])))
    found.sort(key=lambda one: -one[0])
    return tuple(_token(row, place, f"ratio {ratio:.3g}") for _, row, place, ratio in found[:SHOWN])


def disagreements(agreement: Agreement) -> tuple[Exhibit, ...]:
    """The tokens on which trainer and sampler differ most."""
    ordered = sorted(agreement.rollouts, key=lambda one: -one.largest)[:SHOWN]
    shown: list[Exhibit] = []
    for one in ordered:
        place = int(np.abs(one.gaps).argmax())
        sampler, trainer = np.exp(one.sampler[place]), np.exp(one.trainer[place])
        why = f"sampled with probability {sampler:.3g}, trained as {trainer:.3g}"
        shown.append(_token(one.row, int(one.places[place]), why))
    return tuple(shown)


def _token(row: RolloutRow, place: int, why: str) -> Exhibit:
    span = (max(0, place - AROUND), min(row.length, place + AROUND + 1))
    return Exhibit(step=row.step, rollout=row.key, why=f"token {place}: {why}", tokens=span)
