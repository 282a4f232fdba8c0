"""Prompts, rollouts and groups made by hand, for tests of what comes before and after sampling."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.types import Draw, Finish, Grade, GradeState, Group, Prompt, Rollout, ScoredGroup, VersionSpan


def prompt_of(
    id: str = "p", *, answer: Any = "7", text: str = "3+4=", tokens: int = 4, **meta: Any
) -> Prompt:
    ids = np.arange(2, 2 + tokens, dtype=np.int64)
    return Prompt(id=id, token_ids=ids, text=text, task="sums", answer=answer, meta=meta)


def rollout_of(
    text: str = "7",
    *,
    prompt: str = "p",
    draw: int = 0,
    index: int = 0,
    length: int = 3,
    finish: Finish = Finish.STOP,
    version: int = 0,
) -> Rollout:
    return Rollout(
        prompt_id=prompt,
        draw=draw,
        index=index,
        token_ids=np.arange(2, 2 + length, dtype=np.int64),
        logprobs=np.full(length, -1.0, dtype=np.float32),
        mask=np.ones(length, dtype=np.bool_),
        finish=finish,
        versions=(VersionSpan(version, 0, length),),
        seed=index,
        text=text,
    )


def group_of(rollouts: Sequence[Rollout], prompt: Prompt | None = None, draw: int = 0) -> Group:
    return Group(draw=Draw(prompt or prompt_of(), draw), rollouts=tuple(rollouts))


def grade_of(value: float | None) -> Grade:
    return Grade(state=GradeState.GRADER_FAILED, value=None) if value is None else Grade.of(value)


def scored_of(
    values: Sequence[float | None],
    *,
    id: str = "p",
    draw: int = 0,
    lengths: Sequence[int] | None = None,
    truncated: Sequence[int] = (),
    version: int = 0,
    prompt_tokens: int = 4,
) -> ScoredGroup:
    """A group with these grade values (None: the grader failed), lengths and truncated answers."""
    lengths = [3] * len(values) if lengths is None else lengths
    rollouts = [
        rollout_of(
            prompt=id,
            draw=draw,
            index=i,
            length=length,
            finish=Finish.LENGTH if i in truncated else Finish.STOP,
            version=version,
        )
        for i, length in enumerate(lengths)
    ]
    group = group_of(rollouts, prompt_of(id, tokens=prompt_tokens), draw)
    return ScoredGroup(group=group, grades=tuple(map(grade_of, values)))
