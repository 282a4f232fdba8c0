"""Small hand-made groups, batches and updates for the tests of probes and record."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch

from trimtab import probes
from trimtab.metrics import Mean, Metrics
from trimtab.types import (
    Batch,
    Draw,
    Finish,
    Grade,
    GradeState,
    Group,
    Prompt,
    RewardedGroup,
    Rollout,
    ScoredGroup,
    StepReport,
    Trace,
    VersionSpan,
)

NO_VALUE = {
    "ungradable": GradeState.NOT_GRADABLE,
    "timeout": GradeState.TIMEOUT,
    "failed": GradeState.GRADER_FAILED,
}


def prompt(name: str = "p") -> Prompt:
    return Prompt(id=name, token_ids=np.array([7, 8, 9]), text=f"{name}: 3+4=", task="sums", answer="7")


def rollout(
    name: str, index: int, length: int, *, finish: Finish = Finish.STOP, version: int = 0, draw: int = 0
):
    """``length`` tokens that differ from rollout to rollout."""
    return Rollout(
        prompt_id=name,
        draw=draw,
        index=index,
        token_ids=np.arange(length, dtype=np.int64) + 100 * index,
        logprobs=-np.linspace(0.5, 1.5, length, dtype=np.float32),
        mask=np.ones(length, dtype=np.bool_),
        finish=finish,
        versions=(VersionSpan(version, 0, length),),
        seed=1000 + index,
        text=f"answer {index}",
    )


def grade(value: float | str) -> Grade:
    """A number is a value; ungradable, timeout and failed have none."""
    if isinstance(value, str):
        return Grade(state=NO_VALUE[value], value=None, detail=value)
    return Grade.of(value, parts={"answer": float(value)}, detail="ok")


def scored(
    name: str,
    values: Sequence[float | str],
    lengths: Sequence[int],
    *,
    cut: Sequence[int] = (),
    draw: int = 0,
    version: int = 0,
) -> ScoredGroup:
    """A group with these grades and lengths; the rollouts in ``cut`` are truncated."""
    rollouts = tuple(
        rollout(
            name, i, length, finish=Finish.LENGTH if i in cut else Finish.STOP, draw=draw, version=version
        )
        for i, length in enumerate(lengths)
    )
    group = Group(draw=Draw(prompt(name), draw), rollouts=rollouts)
    return ScoredGroup(group=group, grades=tuple(grade(value) for value in values))


def rewarded(group: ScoredGroup, shaping: Sequence[float] | None = None) -> RewardedGroup:
    """Rewards +1 and -1, with this length part."""
    part = np.zeros(len(group.grades)) if shaping is None else np.array(shaping, dtype=np.float64)
    values = np.array([np.nan if g.value is None else g.value for g in group.grades])
    return RewardedGroup(scored=group, rewards=2 * values - 1 + part, shaping=part)


def batch(
    lengths: Sequence[int],
    *,
    mask: Sequence[bool] | None = None,
    sampler: Sequence[float] | None = None,
    versions: Sequence[int] | None = None,
    name: str = "p",
    **columns: Sequence[float],
) -> Batch:
    """One group of ``len(lengths)`` sequences; columns by name, float32 but advantages and weights."""
    tokens, sequences = sum(lengths), len(lengths)
    wide = {"advantages_T", "weights_T"}
    return Batch(
        prompts_P=(torch.tensor([7, 8, 9]),),
        token_ids_T=torch.arange(tokens),
        seq_T=torch.repeat_interleave(torch.arange(sequences), torch.tensor(lengths)),
        mask_T=torch.tensor(mask if mask is not None else [True] * tokens),
        rollout_logprobs_T=torch.tensor(
            sampler if sampler is not None else [-1.0] * tokens, dtype=torch.float32
        ),
        group_S=torch.zeros(sequences, dtype=torch.int64),
        rewards_S=torch.zeros(sequences, dtype=torch.float64),
        outcomes_S=torch.zeros(sequences, dtype=torch.float64),
        truncated_S=torch.zeros(sequences, dtype=torch.bool),
        version_S=torch.tensor(versions if versions is not None else [0] * sequences),
        keys_S=tuple(f"{name}#0/{i}" for i in range(sequences)),
        columns={
            key: torch.tensor(column, dtype=torch.float64 if key in wide else torch.float32)
            for key, column in columns.items()
        },
    )


def report(trace: Trace, *, applied: bool = True, **changes: object) -> StepReport:
    fields = {
        "applied": applied,
        "skip_reason": None if applied else "nothing to train on",
        "loss": 0.25,
        "losses": {"policy": 0.2, "kl": 0.05},
        "grad_norm": 1.5 if applied else None,
        "critic_grad_norm": None,
        "learning_rate": 1e-3,
        "trace": trace,
        "seconds": {"forward": 0.5, "backward": 0.25},
    }
    return StepReport(**{**fields, **changes})


FOUR_WAY_RATIOS = (1.5, 0.5, 1.5)
FOUR_WAY_ADVANTAGES = (1.0, 1.0, -1.0)


def four_way(
    weights: Sequence[float], ratios: Sequence[float], gates: Sequence[float]
) -> tuple[Batch, Trace]:
    """The example of the README: y1 has two tokens (ratios 1.5, 0.5, A = +1), y2 one (1.5, A = -1)."""
    new = [math.log(ratio) - 1.0 for ratio in FOUR_WAY_RATIOS]
    made = batch(
        (2, 1),
        old_logprobs_T=[-1.0] * 3,
        advantages_T=FOUR_WAY_ADVANTAGES,
        weights_T=weights,
    )
    trace = Trace(
        logprobs_T=torch.tensor(new, dtype=torch.float32),
        entropy_T=torch.tensor([0.5, 1.0, 1.5]),
        ratio_T=torch.tensor(ratios, dtype=torch.float64),
        gate_T=torch.tensor(gates, dtype=torch.float64),
        clamped_T=torch.tensor([False, False, False]),
    )
    return made, trace


def everything() -> Metrics:
    """One step in which every metric of the catalogue has something to say."""
    groups = [
        scored("a", [1, 0, 0.5], [3, 40, 4], cut=[1]),
        scored("b", [0, 1, 1, "failed"], [9, 9, 2, 7]),
        scored("c", [1, 1], [5, 6]),
    ]
    made = batch(
        (2, 1),
        sampler=[-1.0, -1.0, -1.1],
        old_logprobs_T=[-1.0] * 3,
        ref_logprobs_T=[-1.2] * 3,
        values_T=[0.1, 0.2, 0.3],
        returns_T=[1.0, 1.0, 0.0],
        advantages_T=FOUR_WAY_ADVANTAGES,
        weights_T=(0.25, 0.25, 0.5),
        correction_T=(1.0, 1.0, math.exp(0.1)),
        correction_side_T=(0, 0, 0),
        correction_clamped_T=(0, 0, 0),
    )
    _, trace = four_way((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, (0, 1, 1))
    trace = dataclasses.replace(
        trace,
        value_clipped_T=torch.tensor([True, False, False]),
        routing_T=torch.tensor([1.0, 0.75, float("nan")]),
    )
    counts = {"wanted": 4, "rounds": 2, "fresh_kept": 2, "carried_in": 1, "carried_out": 0}
    return {
        **probes.group_metrics(groups, max_new_tokens=40, penalty_free=30),
        **probes.reward_metrics(
            [rewarded(groups[0], [0.0, -0.5, 0.0]), rewarded(groups[1])], penalty_free=30
        ),
        **probes.selection_metrics(
            **counts, fresh=groups, trained=groups[:2], dropped={"all-right": 1, "stale": 1}, version=3
        ),
        **probes.pool_metrics(
            prompts=9,
            drawn=3,
            trained=2,
            bands={"hopeless": 1, "learning": 1, "mastered": 1},
            moves={("hopeless", "learning"): 1},
            pass_rate=0.4,
            drawn_lately=2,
            trained_lately=1,
            trained_pass_rate=0.5,
        ),
        **probes.mismatch_metrics(made, version=0),
        **probes.update_metrics(made, report(trace, critic_grad_norm=2.0)),
        **probes.coefficient_metrics({"policy": 1.0, "kl": 0.04}),
        **probes.time_metrics({"sample": 2.0, "grade": 0.5}, step=3.0, tokens={"sample": 100}),
        **probes.pace_metrics(queue=1, trainer_wait=0.5, sampler_wait=0.1, hidden=1.5, collection=2.0),
        **probes.memory_metrics(resident=10, peak=20, device_peak=30),
        "imported/kl_coef": Mean.of([0.1]),
    }


def evaluation() -> dict[str, object]:
    """What the record keeps of an evaluation."""
    return {
        "pass@1": 0.5,
        "pass@1_interval": [0.4, 0.6],
        "maj@8": 0.7,
        "maj@8_interval": [0.6, 0.8],
        "prompts": 1,
        "answers": 8,
        "ungraded": 2,
        "truncated": 0.1,
        "mean_length": 9.5,
        "train_gap": 0.05,
    }
