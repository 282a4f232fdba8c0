"""Preflight draws a few hundred answers from the real model, within a time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine, Sampling
from trimtab.types import Draw, Prompt, ScoredGroup

FIRST_GROUPS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """Graded groups of different prompts, and what they cost.

    The costs (seconds, response tokens, answers) are of the larger and last batch alone, since a full
    batch is what a step pays for.
    cut_short: whether time ended before the asked number of answers was there.
    """

    groups: tuple[ScoredGroup, ...]
    sample_seconds: float
    grade_seconds: float
    tokens: int
    answers: int
    cut_short: bool

    @property
    def seconds_per_token(self) -> float:
        return self.sample_seconds / max(1, self.tokens)

    @property
    def grade_seconds_per_answer(self) -> float:
        return self.grade_seconds / max(1, self.answers)


async def draw(
    engine: RolloutEngine,
    rubric: Rubric,
    prompts: Sequence[Prompt],
    *,
    answers: int,
    samples: int,
    sampling: Sampling,
    seed: int,
    seconds: float,
) -> Drawn:
    """About ``answers`` answers, ``samples`` to a prompt, of prompts chosen by ``seed``.

    A small batch comes first; the second is as large as the rest of ``seconds`` is expected to allow.
    A batch is always finished: stopping in its middle would keep the short answers and lose the long.
    """
    order = np.random.default_rng(seed).permutation(len(prompts))
    wanted = [Draw(prompts[i], 0) for i in order[: max(1, answers // samples)].tolist()]
    began = time.perf_counter()
    first = wanted[:FIRST_GROUPS]
    groups, *cost = await _batch(engine, rubric, first, samples, sampling, seed)
    spent = time.perf_counter() - began
    fits = int((seconds - spent) / spent * len(first)) if spent > 0 else len(wanted)
    rest = wanted[len(first) : len(first) + max(0, fits)]
    if rest:
        more, *cost = await _batch(engine, rubric, rest, samples, sampling, seed)
        groups = [*groups, *more]
    sample_seconds, grade_seconds, tokens, count = cost
    return Drawn(
        groups=tuple(groups),
        sample_seconds=sample_seconds,
        grade_seconds=grade_seconds,
        tokens=int(tokens),
        answers=int(count),
        cut_short=len(groups) < len(wanted),
    )


async def _batch(
    engine: RolloutEngine, rubric: Rubric, draws: Sequence[Draw], samples: int, sampling: Sampling, seed: int
) -> tuple[list[ScoredGroup], float, float, int, int]:
    """(groups, seconds of sampling, of grading, response tokens, answers) of these draws."""
    began, grading = time.perf_counter(), 0.0
    groups: list[ScoredGroup] = []
    async for group in engine.generate(draws, samples, sampling, seed=seed, purpose="preflight"):
        before = time.perf_counter()
        groups.append(await rubric.grade(group))
        grading += time.perf_counter() - before
    rollouts = [rollout for scored in groups for rollout in scored.group.rollouts]
    sampling_seconds = time.perf_counter() - began - grading
    return groups, sampling_seconds, grading, sum(r.length for r in rollouts), len(rollouts)
