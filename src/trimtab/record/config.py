"""What of a run is kept: the ``[record]`` table of a recipe."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trimtab.errors import SettingError

Amount = int | float | Literal["all"]
"""How many of a step's groups: a number (8), a share (0.25), or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """How much of every step is written down.

    rollouts: groups a step whose rollouts are written, one row each: a number, a share below 1.0, or "all".
    tokens: of the trained groups written, those that also keep a value per token. About 60 bytes a token.
        Groups that are flagged are written with their tokens whatever these two say.
    rollouts_every: steps from one rollouts file to the next.
    checkpoint_every: steps from one checkpoint to the next; the last step always has one.
    keep_checkpoints: newest checkpoints that are kept; older ones are deleted.
    """

    rollouts: Amount = "all"
    tokens: Amount = 8
    rollouts_every: int = 1
    checkpoint_every: int = 25
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        for name in ("rollouts", "tokens"):
            amount: Amount = getattr(self, name)
            number = type(amount) is int and amount >= 0
            share = type(amount) is float and 0.0 < amount < 1.0
            if amount != "all" and not number and not share:
                raise SettingError(
                    f"record.{name} must be a number of groups, a share between 0.0 and 1.0, "
                    f'or "all", got {amount!r}'
                )
        for name in ("rollouts_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise SettingError(f"record.{name} must be >= 1, got {getattr(self, name)}")


def choose(amount: Amount, keys: Iterable[str], step: int) -> set[str]:
    """That many of the keys, picked by a hash of step and key: the same in every run and on every machine."""
    ordered = sorted(set(keys), key=lambda key: hashlib.blake2b(f"{step}|{key}".encode()).digest())
    if amount == "all":
        return set(ordered)
    count = amount if isinstance(amount, int) else round(amount * len(ordered))
    return set(ordered[:count])
