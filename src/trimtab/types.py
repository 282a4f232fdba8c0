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

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

UNIFORM_TOLERANCE = 1e-6
"""Two outcomes closer than this are the same outcome (decided by max - min in float64)."""


class MissingColumnError(LookupError):
    """A stage asked a Batch for a column that no earlier stage has filled."""


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
    meta: Mapping[str, Any] = field(default_factory=dict)


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
    parts: Mapping[str, float] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Graded rollouts of a step (or a part of them) as packed tensors. Ungraded ones never enter.

    Shapes: ``prompts_P`` P tensors of ids; ``token_ids_T, seq_T`` [T] int64 (``seq_T`` is
    non-decreasing and says which sequence token t belongs to; a sequence may have no token);
    ``mask_T`` [T] bool; ``rollout_logprobs_T`` [T] float32, from the sampler; ``group_S`` [S] int64
    into ``prompts_P``; ``rewards_S`` [S] float64 after shaping; ``outcomes_S`` [S] float64, the raw
    grades; ``truncated_S`` [S] bool; ``version_S`` [S] int64; ``keys_S`` the rollouts' keys.

    ``columns`` are filled by later stages and read through properties that raise with the remedy.

    Example: two answers to one prompt, of 2 and 1 tokens:
        seq_T = [0, 0, 1], group_S = [0, 0], mask_T = [True, True, True]
    """

    prompts_P: tuple[Tensor, ...]
    token_ids_T: Tensor
    seq_T: Tensor
    mask_T: Tensor
    rollout_logprobs_T: Tensor
    group_S: Tensor
    rewards_S: Tensor
    outcomes_S: Tensor
    truncated_S: Tensor
    version_S: Tensor
    keys_S: tuple[str, ...]
    columns: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def num_sequences(self) -> int:
        return len(self.keys_S)

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids_T.shape[0])

    @property
    def lengths_S(self) -> Tensor:
        """Response tokens of each sequence, masked ones included."""
        return torch.bincount(self.seq_T, minlength=self.num_sequences)

    @property
    def trained_S(self) -> Tensor:
        """Trained tokens of each sequence."""
        return torch.bincount(self.seq_T[self.mask_T], minlength=self.num_sequences)

    @property
    def old_logprobs_T(self) -> Tensor:
        return self._column("old_logprobs_T", "trainer.annotate(batch, {'old_logprobs_T'})")

    @property
    def ref_logprobs_T(self) -> Tensor:
        return self._column("ref_logprobs_T", "trainer.annotate(batch, {'ref_logprobs_T'}), which needs a reference model")

    @property
    def values_T(self) -> Tensor:
        return self._column("values_T", "trainer.annotate(batch, {'values_T'}), which needs a critic")

    @property
    def advantages_T(self) -> Tensor:
        return self._column("advantages_T", "batch.with_columns(**advantage(batch))")

    @property
    def returns_T(self) -> Tensor:
        return self._column("returns_T", "an advantage estimator with a critic (GAE)")

    @property
    def weights_T(self) -> Tensor:
        return self._column("weights_T", "objective.weighted(batch) on the whole update, before micro-batches")

    def _column(self, name: str, remedy: str) -> Tensor:
        try:
            return self.columns[name]
        except KeyError:
            raise MissingColumnError(f"this batch has no {name}; fill it with {remedy}") from None

    def with_columns(self, **columns: Tensor) -> Batch:
        """A copy with more columns. Names end in _T (one entry a token) or _S (one a sequence)."""
        sizes = {"_T": self.num_tokens, "_S": self.num_sequences}
        for name, column in columns.items():
            expected = sizes.get(name[-2:])
            if expected is None or column.shape[0] != expected:
                raise ValueError(f"column {name}: expected {expected} entries, got {tuple(column.shape)}")
        return dataclasses.replace(self, columns={**self.columns, **columns})

    def select(self, sequences: Sequence[int] | Tensor) -> Batch:
        """The whole sequences of these indices, in this order, with all their columns.

        Groups are renumbered in order of first appearance; a group without a sequence is dropped.
        """
        index_S = torch.as_tensor(sequences, dtype=torch.int64)
        lengths_S = self.lengths_S
        starts_S = torch.cumsum(lengths_S, 0) - lengths_S
        chosen_S = lengths_S[index_S]
        seq_T = torch.repeat_interleave(torch.arange(len(index_S)), chosen_S)
        first_S = torch.cumsum(chosen_S, 0) - chosen_S
        token_T = torch.arange(int(chosen_S.sum())) - first_S[seq_T] + starts_S[index_S][seq_T]
        order: dict[int, int] = {}
        group_S = [order.setdefault(int(g), len(order)) for g in self.group_S[index_S]]
        pick = {"_T": token_T, "_S": index_S}
        return Batch(
            prompts_P=tuple(self.prompts_P[g] for g in order),
            token_ids_T=self.token_ids_T[token_T],
            seq_T=seq_T,
            mask_T=self.mask_T[token_T],
            rollout_logprobs_T=self.rollout_logprobs_T[token_T],
            group_S=torch.tensor(group_S, dtype=torch.int64),
            rewards_S=self.rewards_S[index_S],
            outcomes_S=self.outcomes_S[index_S],
            truncated_S=self.truncated_S[index_S],
            version_S=self.version_S[index_S],
            keys_S=tuple(self.keys_S[i] for i in index_S.tolist()),
            columns={name: column[pick[name[-2:]]] for name, column in self.columns.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelOutput:
    """What one forward pass says of the T tokens of a batch, with gradients where training.

    ``logprobs_T`` float32 at the sampling temperature; ``entropy_T`` nats over the whole
    vocabulary; ``values_T`` from the critic, None where there is none.
    """

    logprobs_T: Tensor
    entropy_T: Tensor
    values_T: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """What an objective saw of each token, detached. None means: this objective has no such thing.

    ``ratio_T`` as the surrogate used it; ``gate_T`` share of the gradient let through; ``clamped_T``
    log-ratio clamped before exp; ``kl_T`` value of the KL term; ``value_clipped_T`` value loss cut.
    """

    logprobs_T: Tensor | None = None
    entropy_T: Tensor | None = None
    ratio_T: Tensor | None = None
    gate_T: Tensor | None = None
    clamped_T: Tensor | None = None
    kl_T: Tensor | None = None
    values_T: Tensor | None = None
    value_clipped_T: Tensor | None = None

    def __or__(self, other: Trace) -> Trace:
        """Both traces together; where both have a field, ``other`` counts."""
        pairs = {f.name: getattr(other, f.name) for f in dataclasses.fields(Trace)}
        return dataclasses.replace(self, **{name: value for name, value in pairs.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepReport:
    """What one update did. ``trace`` covers all T tokens of the update's batch, in its order.

    ``applied`` is False when the optimizer step was skipped, and ``skip_reason`` says why.
    ``losses`` holds each term's share of the loss by name, coefficient included.
    """

    applied: bool
    skip_reason: str | None
    loss: float
    losses: Mapping[str, float]
    grad_norm: float | None
    critic_grad_norm: float | None
    learning_rate: float
    trace: Trace
    seconds: Mapping[str, float]


class WeightSource(Protocol):
    """Named parameters, yielded one by one; what a trainer publishes and an engine loads."""

    def __iter__(self) -> Iterator[tuple[str, Tensor]]: ...
