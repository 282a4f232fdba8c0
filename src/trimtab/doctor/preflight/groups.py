"""Preflight's question about signal: how many groups will have right and wrong answers in them?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.data.selection import Selection
from trimtab.doctor.preflight.check import Check, Level
from trimtab.evaluation.estimators import bootstrap
from trimtab.evaluation.useful import useful_share
from trimtab.types import ScoredGroup

SIZES = (4, 8, 16, 32)
FEW, HARDLY_ANY = 0.2, 0.02
BINS = 10


def group_checks(
    groups: Sequence[ScoredGroup], selection: Selection | None, samples: int, pool: int, prompts: int
) -> list[Check]:
    """Pass rates and useful groups. samples, prompts: of a step of the run; pool: training prompts."""
    rates = [scored.pass_rate for scored in groups if scored.pass_rate is not None]
    if not rates:
        return [
            Check(name="pass-rate", level=Level.SKIPPED, says="no answer was graded, so nothing is known")
        ]
    return [pass_rates(np.array(rates)), useful_groups(groups, selection, samples, pool, prompts)]


def pass_rates(rates_P: np.ndarray) -> Check:
    """The histogram of pass rates over prompts, and their mean."""
    estimate = bootstrap(rates_P)
    counts = np.histogram(rates_P, bins=BINS, range=(0.0, 1.0))[0].tolist()
    nothing, everything = int((rates_P == 0.0).sum()), int((rates_P == 1.0).sum())
    says = (
        f"pass rate {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}] over {len(rates_P)} "
        f"prompts; {nothing} never right, {everything} always right"
    )
    level, advice = Level.OK, ""
    if nothing == len(rates_P):
        level = Level.CRITICAL
        advice = (
            "check first that the grader reads the answers (see parsing); if it does, take easier prompts or "
            "a stronger start model: nothing right means nothing to reinforce"
        )
    elif everything == len(rates_P):
        level, advice = Level.CRITICAL, "take harder prompts: this model has mastered these"
    widest = max(counts)
    bars = tuple(
        f"{i / BINS:.1f} to {(i + 1) / BINS:.1f}  {'█' * round(30 * count / widest):<30} {count}"
        for i, count in enumerate(counts)
    )
    numbers = {"mean": estimate.value, "interval": [estimate.low, estimate.high], "histogram": counts}
    return Check(name="pass-rate", level=level, says=says, advice=advice, numbers=numbers, shown=bars)


def draws_per_group(groups: Sequence[ScoredGroup], selection: Selection | None, samples: int) -> float:
    """Groups that a step draws for each one it trains on, within the selection's bound; else 1."""
    counts = _counts(groups)
    if selection is None or not counts[0]:
        return 1.0
    share = useful_share(*counts, [samples])[0].value
    bound = selection.max_draws_factor
    return min(bound, 1.0 / share) if share > 0.0 else bound


def _counts(groups: Sequence[ScoredGroup]) -> tuple[list[int], list[int]]:
    """(right answers, graded answers) of every group that has any."""
    graded = [scored.values for scored in groups if len(scored.values)]
    return [int((values == 1.0).sum()) for values in graded], [len(values) for values in graded]


def useful_groups(
    groups: Sequence[ScoredGroup], selection: Selection | None, samples: int, pool: int, prompts: int
) -> Check:
    """Expected share of groups with right and wrong answers, by group size, and what selection would draw."""
    sizes = sorted({*SIZES, samples})
    shares = dict(zip(sizes, useful_share(*_counts(groups), sizes), strict=True))
    here = shares[samples].value
    told = ", ".join(f"G={size}: {found.value:.0%}" for size, found in shares.items())
    says = f"expected share of groups that can teach: {told}"
    numbers = {
        str(size): {"share": found.value, "interval": [found.low, found.high], "method": found.method}
        for size, found in shares.items()
    }
    level = Level.CRITICAL if here < HARDLY_ANY else Level.WARNING if here < FEW else Level.OK
    advice = "" if level is Level.OK else _advice(groups, samples)
    if selection is not None and here > 0.0:
        limit = selection.draw_limit(prompts, pool)
        expected = prompts / here
        says += f"; dynamic sampling draws about {1 / here:.1f} groups for each kept one"
        if expected > limit and level is Level.OK:
            level = Level.WARNING
            advice = (
                f"a step may draw {limit} groups and needs about {expected:.0f}: steps will be underfilled"
            )
    return Check(name="useful-groups", level=level, says=says, advice=advice, numbers=numbers)


def _advice(groups: Sequence[ScoredGroup], samples: int) -> str:
    rates = [scored.pass_rate for scored in groups if scored.pass_rate is not None]
    if np.mean(rates) > 0.5:
        return "take harder prompts; larger groups (sampling.samples_per_prompt) help a little"
    larger = 2 * samples
    return f"take easier prompts or a stronger start model, or set sampling.samples_per_prompt = {larger}"
