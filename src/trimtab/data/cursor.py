"""The order in which prompts are drawn: shuffled anew each epoch, resumable to the bit.

The order of epoch e depends on the seed, e and the number of prompts, on nothing else; so the whole
state is an epoch and a position.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.errors import DataError
from trimtab.types import Draw, Prompt


class PromptCursor:
    """Draws prompts for ever, each once an epoch. Uses no random generator but its own.

    A prompt that stands n times among the prompts is drawn n times an epoch. Draw numbers count the
    draws of one prompt in this run, from 0, so that no two groups of a run have the same key.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        if not prompts:
            raise DataError("there is no prompt to draw from; data.task or data.files must give at least one")
        self.prompts = tuple(prompts)
        self.seed = seed
        self._copies = Counter(prompt.id for prompt in self.prompts)
        self._enter(epoch=0, position=0)

    @property
    def epoch(self) -> int:
        """Epochs begun before this one."""
        return self._epoch

    @property
    def drawn(self) -> int:
        """Draws so far."""
        return self._epoch * len(self.prompts) + self._position

    def draw(self) -> Draw:
        """The next prompt, with the number of this draw of it."""
        if self._position == len(self.prompts):
            self._enter(epoch=self._epoch + 1, position=0)
        prompt = self.prompts[self._order[self._position]]
        self._position += 1
        number = self._epoch * self._copies[prompt.id] + self._seen[prompt.id]
        self._seen[prompt.id] += 1
        return Draw(prompt, number)

    def state(self) -> dict[str, Any]:
        """All that ``restore`` needs, as JSON."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "seed": self.seed,
            "prompts": len(self.prompts),
            "fingerprint": fingerprint(self.prompts),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken.

        Raises DataError when the prompts or the seed are not those of the state.
        """
        if state["fingerprint"] != fingerprint(self.prompts):
            raise DataError(
                f"this run was begun with other prompts ({state['prompts']} then, {len(self.prompts)} now, "
                "or other texts); resume it with the same data and the same template, or start a new run"
            )
        if state["seed"] != self.seed:
            raise DataError(
                f"this run was begun with seed {state['seed']}, not {self.seed}, so its prompts would come "
                f"in another order; resume it with run.seed = {state['seed']}, or start a new run"
            )
        self._enter(epoch=int(state["epoch"]), position=int(state["position"]))

    def _enter(self, epoch: int, position: int) -> None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
        self._order: list[int] = rng.permutation(len(self.prompts)).tolist()
        self._epoch, self._position = epoch, position
        self._seen = Counter(self.prompts[index].id for index in self._order[:position])


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """A hash of the ids and tokens of these prompts in their order, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for prompt in prompts:
        digest.update(f"{len(prompt.id)}:{prompt.id}:{len(prompt.token_ids)}:".encode())
        digest.update(np.ascontiguousarray(prompt.token_ids, dtype="<i8").tobytes())
    return digest.hexdigest()
