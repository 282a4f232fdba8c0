"""Causes in length: what it earns, where it is cut off, and what it costs."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from trimtab.doctor.case import Case
from trimtab.doctor.suspicion import CLEARED, UNTESTED, Suspicion, set_to, share, suspicion
from trimtab.types import Finish

TINY = 1e-6

FEW_MIXED = 0.15
"""Share of groups whose answers differ below which a correlation inside groups says little."""


def reward_pays_length(case: Case) -> Suspicion:
    """By the correlation of grade and length inside groups; where only means are recorded, by both rising."""
    within = case.course("reward/length_correlation_within")
    overall, length = case.course("reward/length_correlation"), case.course("length/mean")
    outcome = case.course("reward/outcome")
    score, seen = UNTESTED, "reward/length_correlation_within is not recorded"
    used = within or overall
    if used is not None:
        level = max(used.now, float(np.median(case.series(_correlation_key(case)).values)))
        if case.now("groups/mixed", 1.0) < FEW_MIXED:
            level = min(level, 0.3)  # of a handful of groups that differ, any correlation is chance
        score = float(np.interp(level, [0.15, 0.3, 0.5, 0.8], [0.0, 0.4, 0.8, 0.97]))
        seen = f"of two answers to one prompt the longer earns more: r = {level:.2f}"
    elif length is not None and outcome is not None and length.rises and outcome.rises:
        score = 0.5 if length.factor() > 1.4 else 0.3
        seen = f"reward and length rise together, length to {length.now:.0f} tokens"
    return suspicion(
        score,
        "reward-pays-length",
        "the reward grows with the answer's length, whatever it says",
        test=f"correlation of grade and length inside groups: {seen}",
        change="grade what the answer says; no part of the reward may grow with its length",
    )


def _correlation_key(case: Case) -> str:
    within = "reward/length_correlation_within"
    return within if case.has(within) else "reward/length_correlation"


def max_length_too_short(case: Case) -> Suspicion:
    """By when answers are cut off: from the first step on, or only once they have grown."""
    cut, limit = case.course("length/truncated"), case.setup.max_new_tokens
    score, seen, wanted = UNTESTED, "length/truncated is not recorded", None
    if cut is not None:
        first = float(np.mean(case.series("length/truncated").values[:2]))
        early = first > 0.2
        score = 0.85 if early and cut.now > 0.15 else 0.5 if early else 0.1 if cut.now > 0.2 else CLEARED
        seen = f"{share(first)} of the answers were cut off in the first two steps"
        wanted = _suggested_limit(case)
    if limit is not None and wanted is not None:
        change = set_to(case, "sampling.max_new_tokens", wanted)
    else:
        change = "a limit two to four times as large"
    return suspicion(
        score,
        "max-length-too-short",
        "the limit cuts answers off before they can say their result",
        test=f"a limit that is too short cuts from the first step on: {seen}",
        change=change,
    )


def _suggested_limit(case: Case) -> int | None:
    """Twice to four times the limit; the 95% quantile of finished answers on top where enough finish."""
    limit = case.setup.max_new_tokens
    if limit is None:
        return None
    finished = [row.length for row in case.rollouts.all if row.finish is Finish.STOP]
    enough = len(finished) > 20 and case.now("length/truncated") < 0.5
    return max(2 * limit, int(1.5 * np.quantile(finished, 0.95))) if enough else 4 * limit


def overlong_penalty_too_strong(case: Case) -> Suspicion:
    """By where the penalty begins against the length of right answers, and how many it touches."""
    touched, free = case.course("reward/shaping_share"), case.setup.penalty_free
    score, seen = CLEARED, "there is no length penalty"
    change = "a smaller length penalty"
    right = case.course("length/right") or case.course("length/mean")
    if touched is not None:
        weight = penalty_weight(case)
        reached = free is not None and right is not None and free < right.start
        score = 0.1 + 0.5 * (touched.start > 0.5 or touched.now > 0.5) + 0.3 * reached + 0.1 * (weight > 0.3)
        score = score if touched.peak > 0.2 else 0.05
        seen = f"it touched {share(touched.start)} of the answers at the start"
        if free is not None and right is not None:
            seen += f" and begins at {free} tokens, where right answers have {right.start:.0f}"
        change = _buffer_change(case)
    return suspicion(
        score,
        "overlong-penalty-too-strong",
        "the length penalty reaches answers that are not too long, so it pays to stop early",
        test=f"the penalty should begin beyond the length of right answers: {seen}",
        change=change,
    )


def penalty_weight(case: Case) -> float:
    """Mean length penalty against the spread of rewards in trained groups."""
    spread = case.median("groups/reward_std")
    return abs(case.median("reward/shaping")) / spread if spread > TINY else 0.0


def _buffer_change(case: Case) -> str:
    longest = case.setup.max_new_tokens
    if longest is None:
        return "a smaller overlong buffer"
    now = case.setup.setting("algorithm.overlong_buffer")
    path = "algorithm.overlong_buffer" if now is not None else "algorithm.shaping.buffer"
    return set_to(case, path, max(1, longest // 8))


def overlong_penalty_too_weak(case: Case) -> Suspicion:
    """By answers that the penalty touches and that run into the limit all the same."""
    touched = case.course("reward/shaping_share")
    cut = case.now("length/truncated")
    on = touched is not None and touched.now > 0.2
    return suspicion(
        0.5 if on and cut > 0.2 else CLEARED if touched is None else 0.1,
        "overlong-penalty-too-weak",
        "the length penalty is there and answers run into the limit all the same",
        test=f"{share(cut)} of the answers are cut off although the penalty touches them",
        change='algorithm.shaping = "hard-overlong", or overlong filtering',
    )
