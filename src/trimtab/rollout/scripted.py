"""An engine that says what it is told to, for tests of everything that stands behind an engine."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import numpy as np
import torch

from trimtab.errors import DataError, RunError
from trimtab.rollout.engine import Sampling, rollout_seed
from trimtab.rollout.randomness import streams, uniforms
from trimtab.types import Draw, Finish, Group, Rollout, VersionSpan, WeightSource

Answer = str | Sequence[int]
Script = Mapping[str, Sequence[Answer]] | Callable[[Draw, int], Answer]


def spell(text: str) -> list[int]:
    """One id a character: its code point."""
    return [ord(character) for character in text]


def read(token_ids: Iterable[int]) -> str:
    """The text whose code points these ids are."""
    return "".join(chr(i) for i in token_ids)


class ScriptedEngine:
    """Answers from a script: by prompt id, taken in turn over draws and rollouts, or by a function.

    answers: {"sums-1": ["7", "8"]}, or a function of a draw and a rollout's index. Texts go through
        ``encode`` and get ``end_id``; ids are taken as they are and end with STOP only if their last
        one is ``end_id``. Answers beyond max_new_tokens are cut and end with LENGTH.
    fails_on: prompt ids at which ``generate`` raises RunError, as a broken engine would.
    Log-probabilities are made up from each rollout's seed: reproducible, finite, below 0. Groups come
    in the order of their longest answers, as from an engine that grows them together.
    """

    def __init__(
        self,
        answers: Script,
        *,
        encode: Callable[[str], Sequence[int]] = spell,
        decode: Callable[[Sequence[int]], str] = read,
        end_id: int = 3,
        context: int = 1 << 30,
        fails_on: frozenset[str] = frozenset(),
    ) -> None:
        self.answers, self.encode, self.decode = answers, encode, decode
        self.end_id, self.context, self.fails_on = end_id, context, fails_on
        self.version = 0
        self.loaded: list[dict[str, torch.Tensor]] = []

    @property
    def dtype(self) -> torch.dtype:
        """float32: its log-probabilities are made up in it."""
        return torch.float32

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        """See ``RolloutEngine``.

        Raises: DataError for a prompt that is empty, too long or not in the script; RunError as told.
        """
        for draw in draws:
            length = len(draw.prompt.token_ids)
            if not length or length + sampling.max_new_tokens > self.context:
                raise DataError(
                    f"prompt {draw.prompt.id!r} has {length} tokens; the context is {self.context}"
                )
        groups = []
        for draw in draws:
            seeds = [rollout_seed(seed, purpose, draw.prompt.id, draw.number, i) for i in range(n)]
            rollouts = tuple(self._rollout(draw, i, n, s, sampling) for i, s in enumerate(seeds))
            groups.append(Group(draw=draw, rollouts=rollouts))
        for group in sorted(groups, key=lambda g: max(r.length for r in g.rollouts)):
            await asyncio.sleep(0)
            if group.prompt.id in self.fails_on:
                raise RunError(f"the scripted engine was told to fail at prompt {group.prompt.id!r}")
            yield group

    def _answer(self, draw: Draw, index: int, n: int) -> Answer:
        if callable(self.answers):
            return self.answers(draw, index)
        if not self.answers.get(draw.prompt.id):
            raise DataError(f"the script has no answer for prompt {draw.prompt.id!r}")
        known = self.answers[draw.prompt.id]
        return known[(draw.number * n + index) % len(known)]

    def _rollout(self, draw: Draw, index: int, n: int, seed: int, sampling: Sampling) -> Rollout:
        answer = self._answer(draw, index, n)
        ids = list(answer)[:] if not isinstance(answer, str) else [*self.encode(answer), self.end_id]
        ids = [int(i) for i in ids][: sampling.max_new_tokens]
        stopped = bool(ids) and ids[-1] == self.end_id
        text = self.decode(ids[:-1] if stopped else ids)
        ends = [text.find(stop) + len(stop) for stop in sampling.stop if stop in text]
        if ends:
            text, stopped = text[: min(ends)], True
            ids = list(self.encode(text))
        stream = streams(torch.tensor([seed]))
        made_up = uniforms(stream, torch.arange(len(ids))).log().numpy().astype(np.float32)
        return Rollout(
            prompt_id=draw.prompt.id,
            draw=draw.number,
            index=index,
            token_ids=np.asarray(ids, dtype=np.int64),
            logprobs=made_up,
            mask=np.ones(len(ids), dtype=np.bool_),
            finish=Finish.STOP if stopped else Finish.LENGTH,
            versions=(VersionSpan(self.version, 0, len(ids)),) if ids else (),
            seed=seed,
            text=text,
        )

    async def load_weights(self, source: WeightSource, version: int) -> None:
        """Keep a copy of the weights in ``loaded`` and take their version."""
        self.loaded.append({name: tensor.detach().clone() for name, tensor in source})
        self.version = version
