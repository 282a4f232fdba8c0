"""The seam between whoever samples and the loop: ``RolloutEngine`` and its ``Sampling``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch

from trimtab.types import Draw, Group, WeightSource

Fast = Literal["auto", "always", "never"]
"""Whether the local engine decodes with packed weights: see ``LocalEngine``."""

FAST: tuple[Fast, ...] = ("auto", "always", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How answers are drawn. Nothing is ever merged from a checkpoint's generation config.

    Training samples from the policy itself, so there is no top-p, top-k or penalty here: they
    would renormalise the sampler's distribution and not the trainer's.

    temperature: > 0; logits are divided by it in sampling and in training alike.
    max_new_tokens: response tokens at most, the end token included.
    stop: texts that end an answer (kept in the answer), besides the model's own end tokens.
    """

    temperature: float = 1.0
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(
                f"sampling.temperature must be > 0 and finite, got {self.temperature}; greedy answers have "
                "no gradient, for nearly greedy evaluation set evaluation.temperature = 0.01"
            )
        if self.max_new_tokens < 1:
            raise ValueError(f"sampling.max_new_tokens must be >= 1, got {self.max_new_tokens}")


def rollout_seed(run_seed: int, purpose: str, prompt_id: str, draw: int, index: int) -> int:
    """The seed of one rollout, in [0, 2^63): a hash of what identifies it, so no order matters."""
    text = f"{run_seed}|{purpose}|{prompt_id}|{draw}|{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


@runtime_checkable
class RolloutEngine(Protocol):
    """Samples from one policy. Knows no rewards, no optimizer, no Ray.

    ``generate`` yields one Group a draw, each as soon as its n rollouts are finished, in any
    order. The seed of rollout i of a draw is ``rollout_seed(seed, purpose, prompt.id, draw.number, i)``;
    the tokens of a rollout depend on its seed, its prompt and the weights, not on what else is sampled.
    """

    version: int

    @property
    def dtype(self) -> torch.dtype:
        """The type its log-probabilities are computed from; float32 is held to tighter self-checks."""
        ...

    def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]: ...

    async def load_weights(self, source: WeightSource, version: int) -> None: ...
