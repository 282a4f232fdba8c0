"""Collect the groups of a step: draw, sample, grade, judge, and refill within a bound."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from trimtab.data.selection import Reason, Selection, Verdict, outcome
from trimtab.loop.collected import Collected, Judged, Wanted
from trimtab.loop.state import LoopState
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine
from trimtab.types import Draw, ScoredGroup

__all__ = ["SLOWEST_KEEP_RATE", "Collected", "Judged", "Wanted", "collect"]

SLOWEST_KEEP_RATE = 0.25
"""A refill draws at most this many times fewer than it needs, however few groups were kept lately."""


async def collect(
    engine: RolloutEngine, rubric: Rubric, state: LoopState, selection: Selection | None, wanted: Wanted
) -> Collected:
    """Groups for one step. Ends within ``selection.draw_limit`` draws, filled or not.

    Without selection exactly ``wanted.groups`` prompts are drawn and all are kept. With it, carried
    groups come first, dropped ones are replaced, and kept ones beyond the need are carried on.
    """
    found = Collected()
    _take_carried(found, state, selection, engine.version + wanted.ahead, wanted.groups)
    limit = (
        wanted.groups if selection is None else selection.draw_limit(wanted.groups, len(state.cursor.prompts))
    )
    rate = state.counters.keep_rate
    while len(found.kept) < wanted.groups and found.draws < limit:
        missing = wanted.groups - len(found.kept)
        asked = missing if selection is None else math.ceil(missing / max(rate, SLOWEST_KEEP_RATE))
        draws = list(_next_draws(state, min(asked, limit - found.draws)))
        if not draws:
            break
        found.draws += len(draws)
        found.rounds += 1
        for scored in await _sample_and_grade(engine, rubric, draws, wanted, found):
            state.memory.observe(scored, state.counters.step)
            _judge(found, scored, selection, wanted.groups)
        rate = _share_kept(found)
    if found.draws:
        state.counters.keep_rate = 0.5 * state.counters.keep_rate + 0.5 * _share_kept(found)
    state.carried = list(found.surplus)
    found.cursor, found.keep_rate = state.cursor.drawn, state.counters.keep_rate
    return found


def _take_carried(
    found: Collected, state: LoopState, selection: Selection | None, version: int, wanted: int
) -> None:
    for scored in state.carried:
        if selection is None or not selection.usable(scored.group, version):
            found.judged.append(Judged(scored, Verdict(False, Reason.STALE), carried_in=True))
        elif len(found.kept) < wanted:
            found.kept.append(scored)
            found.judged.append(Judged(scored, Verdict(True, Reason.KEPT), carried_in=True))
        else:
            found.surplus.append(scored)
    state.carried = []


def _next_draws(state: LoopState, count: int) -> Iterator[Draw]:
    """Up to ``count`` draws, those to be drawn again first; prompts that memory rests are passed over, each
    at most once.
    """
    passed = 0
    while count and state.again:
        count -= 1
        yield state.again.pop(0)
    while count and passed < len(state.cursor.prompts):
        draw = state.cursor.draw()
        if not state.memory.wants(draw.prompt, state.counters.step):
            passed += 1
            continue
        count -= 1
        yield draw


async def _sample_and_grade(
    engine: RolloutEngine, rubric: Rubric, draws: list[Draw], wanted: Wanted, found: Collected
) -> list[ScoredGroup]:
    """The groups of these draws, graded, in the order of the draws whatever order they finished in."""
    started, before = time.perf_counter(), rubric.seconds
    sampled = engine.generate(draws, wanted.rollouts, wanted.sampling, seed=wanted.seed)
    scored = {group.group.key: group for group in await rubric.grade_all(sampled)}
    grading = rubric.seconds - before
    found.grade_seconds += grading
    found.sample_seconds += time.perf_counter() - started - grading
    groups = [scored[draw.key] for draw in draws]
    found.fresh.extend(groups)
    return groups


def _judge(found: Collected, scored: ScoredGroup, selection: Selection | None, wanted: int) -> None:
    if selection is None:
        reason = outcome(scored)
        keep = reason is not Reason.UNGRADED
        verdict = Verdict(keep, Reason.UNSELECTED if keep else reason)
    else:
        verdict = selection.verdict(scored)
    found.fresh_kept += verdict.keep
    if not verdict.keep:
        found.judged.append(Judged(scored, verdict))
    elif len(found.kept) < wanted:
        found.kept.append(scored)
        found.judged.append(Judged(scored, verdict))
    elif selection is not None and selection.carry:
        found.surplus.append(scored)
    else:
        found.judged.append(Judged(scored, Verdict(False, Reason.SURPLUS)))


def _share_kept(found: Collected) -> float:
    """Share of this step's fresh groups that can teach, kept above 0 so that it can be divided by."""
    return max(found.fresh_kept / found.draws, 1e-3)
