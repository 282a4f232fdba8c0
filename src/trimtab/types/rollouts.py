"""From a question to graded and rewarded answers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

UNIFORM_TOLERANCE = 1e-6
"""Two outcomes closer than this are the same outcome (decided by max - min in float64)."""


class Finish(StrEnum):
    """How the sampling of a rollout ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class GradeState(StrEnum):
    """What a grader could say about an answer. The last three carry no value, never 0."""

    RIGHT = "right"
    WRONG = "wrong"
    PARTIAL = "partial"
    NOT_GRADABLE = "not_gradable"
    TIMEOUT = "timeout"
    GRADER_FAILED = "grader_failed"


GRADED_STATES = frozenset({GradeState.RIGHT, GradeState.WRONG, GradeState.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """One question, rendered and tokenised once. ``id`` is stable across epochs and runs.

    Example: Prompt(id="sums-17", text="3+4=", token_ids=array([6, 14, 7, 16]), task="sums", answer="7")
    """

    id: str
    token_ids: IntArray
    text: str
    task: str
    answer: Any = None
    messages: tuple[Mapping[str, str], ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Draw(NamedTuple):
    """The ``number``-th time (from 0) that this run draws ``prompt``; one draw makes one group."""

    prompt: Prompt
    number: int

    @property
    def key(self) -> str:
        return f"{self.prompt.id}#{self.number}"


class VersionSpan(NamedTuple):
    """Response tokens ``start`` (incl.) to ``stop`` (excl.) were sampled by policy ``version``."""

    version: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """One sampled answer. ``token_ids`` are the record; ``text`` is derived and never re-tokenised.

    Shapes: ``token_ids, logprobs, mask`` are [L]. An end token that was sampled is part of the
    answer (last id, mask True); a truncated answer has none. ``text`` holds no special tokens.
    """

    prompt_id: str
    draw: int
    index: int
    token_ids: IntArray
    logprobs: FloatArray
    mask: BoolArray
    finish: Finish
    versions: tuple[VersionSpan, ...]
    seed: int
    text: str

    @property
    def key(self) -> str:
        return f"{self.prompt_id}#{self.draw}/{self.index}"

    @property
    def length(self) -> int:
        return len(self.token_ids)

    @property
    def truncated(self) -> bool:
        return self.finish is not Finish.STOP

    @property
    def version(self) -> int:
        """The oldest policy version among its tokens."""
        return min((span.version for span in self.versions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What the graders said of one rollout. ``value`` is in [0, 1] for graded states, else None.

    ``parts`` keeps each grader's own unweighted value; ``detail`` says why in one sentence.
    """

    state: GradeState
    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    detail: str = ""

    def __post_init__(self) -> None:
        if self.graded != (self.value is not None):
            raise ValueError(f"a grade with state {self.state} cannot have the value {self.value!r}")
        if self.value is not None and not 0.0 <= self.value <= 1.0:
            raise ValueError(f"a grade's value must be in [0, 1], got {self.value!r}")

    @property
    def graded(self) -> bool:
        return self.state in GRADED_STATES

    @classmethod
    def of(cls, value: float, **kwargs: Any) -> Grade:
        """The graded state that belongs to ``value``: 1 right, 0 wrong, between partial."""
        states = {0.0: GradeState.WRONG, 1.0: GradeState.RIGHT}
        return cls(state=states.get(float(value), GradeState.PARTIAL), value=float(value), **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """The G rollouts of one draw of one prompt."""

    draw: Draw
    rollouts: tuple[Rollout, ...]

    @property
    def prompt(self) -> Prompt:
        return self.draw.prompt

    @property
    def key(self) -> str:
        return self.draw.key


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredGroup:
    """A group and the grade of each of its rollouts, in the same order."""

    group: Group
    grades: tuple[Grade, ...]

    def __post_init__(self) -> None:
        if len(self.grades) != len(self.group.rollouts):
            raise ValueError(
                f"group {self.group.key}: {len(self.grades)} grades for {len(self.group.rollouts)} rollouts"
            )

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of the graded rollouts only, float64."""
        return np.array([g.value for g in self.grades if g.value is not None], dtype=np.float64)

    @property
    def is_uniform(self) -> bool:
        """True when the graded rollouts cannot teach: all alike by max - min, or fewer than two."""
        values = self.values
        return len(values) < 2 or float(values.max() - values.min()) <= UNIFORM_TOLERANCE

    @property
    def pass_rate(self) -> float | None:
        """Mean value of the graded rollouts; None when none was graded."""
        values = self.values
        return float(values.mean()) if len(values) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardedGroup:
    """A scored group with the reward each rollout is optimised for.

    ``rewards`` [G] float64, NaN where not graded. ``shaping`` [G] is the length part already
    contained in ``rewards`` (0 where none), kept apart so that it can be reported.
    """

    scored: ScoredGroup
    rewards: NDArray[np.float64]
    shaping: NDArray[np.float64]
