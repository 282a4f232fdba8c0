"""The nouns of trimtab: frozen values, each made by one stage of the loop and read by the next.

Letters used as suffixes everywhere:
    P  groups of a step (one group = one draw of one prompt)
    G  rollouts of one group
    S  sequences = all rollouts of a batch
    T  response tokens of the S sequences, packed one after another
    V  vocabulary

Conventions, said once. Log-probabilities are in nats, float32, at the sampling temperature.
``x_T[t]`` speaks of token t itself, never of the next one. Masks are bool, True = trained.
Advantages are 0 where masked. Lengths count response tokens, an end token included.

    Prompt -> Draw -> Rollout -> Group -> ScoredGroup -> RewardedGroup -> Batch -> StepReport
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trimtab.types.rollouts import (
    GRADED_STATES,
    UNIFORM_TOLERANCE,
    BoolArray,
    Draw,
    Finish,
    FloatArray,
    Grade,
    GradeState,
    Group,
    IntArray,
    Prompt,
    RewardedGroup,
    Rollout,
    ScoredGroup,
    VersionSpan,
)

if TYPE_CHECKING:
    from trimtab.types.batch import (
        Batch,
        MissingColumnError,
        ModelOutput,
        StepReport,
        Trace,
        WeightSource,
    )

__all__ = [
    "GRADED_STATES",
    "UNIFORM_TOLERANCE",
    "Batch",
    "BoolArray",
    "Draw",
    "Finish",
    "FloatArray",
    "Grade",
    "GradeState",
    "Group",
    "IntArray",
    "MissingColumnError",
    "ModelOutput",
    "Prompt",
    "RewardedGroup",
    "Rollout",
    "ScoredGroup",
    "StepReport",
    "Trace",
    "VersionSpan",
    "WeightSource",
]


def __getattr__(name: str) -> object:
    """The nouns of the packed batch, loaded when first named: who grades an answer needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("trimtab.types.batch"), name)
