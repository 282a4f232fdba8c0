"""How much work a step is: operations and bytes, from the model's shape and what was sampled."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TRAINING = 3
"""Forward and backward passes in units of a forward pass."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Llama kind. ``width``, ``inner``: of states and feed-forward; ``head``: of a head."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int

    @classmethod
    def of(cls, folder: str | Path) -> Shape:
        """From a model's config.json."""
        config = json.loads((Path(folder) / "config.json").read_text())
        heads = config["num_attention_heads"]
        return cls(
            layers=config["num_hidden_layers"],
            width=config["hidden_size"],
            inner=config["intermediate_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
        )

    @property
    def layer_weights(self) -> int:
        """Of all layers' matrices."""
        attention = self.width * self.head * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.inner)

    @property
    def head_weights(self) -> int:
        return self.width * self.vocabulary

    def forward(self, tokens: int, predicted: int, pairs: int) -> float:
        """Operations of a forward pass: over ``tokens``, ``predicted`` of them with the output layer, and
        ``pairs`` of a query and a key it sees: 2 for a weight and token, 4 for a pair and channel.
        """
        attention = 4 * self.layers * self.heads * self.head * pairs
        return 2.0 * (self.layer_weights * tokens + self.head_weights * predicted) + attention


@dataclass(frozen=True, slots=True)
class Speed:
    """What a machine can do: ``operations`` and ``bytes`` a second."""

    operations: float
    bytes: float


def update_operations(shape: Shape, prompt_lengths: Sequence[int], lengths: Sequence[int]) -> float:
    """Of one update, the least there is: each prompt once a group, no padding, no second forward pass.

    prompt_lengths: one a group; lengths: answers, groups one after the other.
    """
    samples = len(lengths) // len(prompt_lengths)
    tokens = sum(prompt_lengths) + sum(lengths)
    pairs = sum(n * (n + 1) // 2 for n in prompt_lengths)
    for i, n in enumerate(lengths):
        pairs += n * prompt_lengths[i // samples] + n * (n + 1) // 2
    return TRAINING * shape.forward(tokens, sum(lengths), pairs)


def sampling_seconds(
    shape: Shape, prompt_lengths: Sequence[int], lengths: Sequence[int], speed: Speed, weight_bytes: int
) -> float:
    """Seconds that sampling needs at least, all answers growing at once.

    Prompts are read once a group; then each token of the longest answer is a step that reads all weights
    (``weight_bytes`` each) and computes the rows still growing: the slower of the two.
    """
    samples = len(lengths) // len(prompt_lengths)
    pairs = sum(n * (n + 1) // 2 for n in prompt_lengths)
    seconds = shape.forward(sum(prompt_lengths), len(prompt_lengths), pairs) / speed.operations
    reading = weight_bytes * (shape.layer_weights + shape.head_weights) / speed.bytes
    for column in range(1, max(lengths, default=0)):
        seen = [prompt_lengths[i // samples] + column for i, n in enumerate(lengths) if n > column]
        seconds += max(reading, shape.forward(len(seen), len(seen), sum(seen)) / speed.operations)
    return seconds
