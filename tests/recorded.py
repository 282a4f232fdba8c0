"""Recorded rollouts made by hand, for tests that read a record without a run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.record.rows import RolloutRow, TokenRow
from trimtab.types import Finish, GradeState, VersionSpan


def recorded(
    index: int,
    value: float,
    log_ratios: Sequence[float],
    *,
    group: str = "p#0",
    update: int | None = 0,
    advantage: float = 0.0,
    with_tokens: bool = True,
    finish: Finish = Finish.STOP,
) -> RolloutRow:
    """One kept rollout whose tokens moved by these log-ratios since they were sampled."""
    size = len(log_ratios)
    return RolloutRow(
        step=3,
        group=group,
        prompt_id=group.partition("#")[0],
        draw=0,
        index=index,
        task="sums",
        kept=True,
        reason="kept",
        carried=False,
        flag=None,
        prompt="3+4=",
        answer="7",
        text="7" * size,
        finish=finish,
        length=size,
        seed=index,
        versions=(VersionSpan(0, 0, size),),
        grade=GradeState.RIGHT if value == 1.0 else GradeState.WRONG,
        value=value,
        parts={},
        detail="",
        reward=value,
        shaping=0.0,
        update=update,
        trained_tokens=size,
        advantage=advantage,
        weight=None,
        tokens=_tokens(log_ratios, advantage) if with_tokens else None,
    )


def _tokens(log_ratios: Sequence[float], advantage: float) -> TokenRow:
    size = len(log_ratios)
    old = np.full(size, -1.0, dtype=np.float32)
    return TokenRow(
        prompt_token_ids=np.array([1, 2]),
        token_ids=np.arange(size),
        mask=np.ones(size, dtype=np.bool_),
        sampler_logprobs=old,
        trained=np.ones(size, dtype=np.bool_),
        old_logprobs=old,
        ref_logprobs=None,
        new_logprobs=old + np.array(log_ratios, dtype=np.float32),
        ratios=None,
        gates=None,
        advantages=np.full(size, advantage),
        weights=None,
        entropies=None,
        values=None,
        returns=None,
    )
