"""Engines with a fault: they sample from old weights, re-tokenise, or leave the end token out of training."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import numpy as np
import torch

from trimtab.models import LoadedModel, as_loaded
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.types import Draw, FloatArray, Group, Rollout, WeightSource

Align = Callable[[LoadedModel, Rollout, list[int]], FloatArray]


class Engine(LocalEngine):
    """A local engine whose groups go through ``changed`` before anybody sees them."""

    def changed(self, rollout: Rollout) -> Rollout:
        return rollout

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        async for group in super().generate(draws, n, sampling, seed=seed, purpose=purpose):
            rollouts = group.rollouts
            if purpose == "train":
                rollouts = tuple(self.changed(rollout) for rollout in rollouts)
            yield dataclasses.replace(group, rollouts=rollouts)


class EndMasked(Engine):
    """The end token is not among the trained ones, as where padding and end share an id."""

    def changed(self, rollout: Rollout) -> Rollout:
        mask = rollout.mask & ~np.isin(rollout.token_ids, self.model.stop_ids)
        return dataclasses.replace(rollout, mask=mask)


class Retokenizing(Engine):
    """Answers travel as text and are tokenised again; the sampler's log-probabilities are put beside."""

    def __init__(self, model: LoadedModel, align: Align) -> None:
        super().__init__(model)
        self.align = align

    def changed(self, rollout: Rollout) -> Rollout:
        ids: list[int] = self.model.tokenizer(rollout.text, add_special_tokens=False)["input_ids"]
        if len(rollout.token_ids) and int(rollout.token_ids[-1]) in self.model.stop_ids:
            ids.append(int(rollout.token_ids[-1]))
        if not ids:
            return rollout
        logprobs = self.align(self.model, rollout, ids)
        versions = tuple(
            span._replace(start=min(span.start, len(ids)), stop=len(ids)) for span in rollout.versions[:1]
        )
        return dataclasses.replace(
            rollout,
            token_ids=np.asarray(ids, dtype=np.int64),
            logprobs=logprobs,
            mask=np.ones(len(ids), dtype=np.bool_),
            versions=versions,
        )


def by_place(model: LoadedModel, rollout: Rollout, ids: list[int]) -> FloatArray:
    """The first log-probabilities of the sampler, one after the other, whatever token they were of."""
    del model
    return np.resize(rollout.logprobs, len(ids)).astype(np.float32)


def by_characters(model: LoadedModel, rollout: Rollout, ids: list[int]) -> FloatArray:
    """Each new token gets the sum of the log-probabilities over the characters that it covers."""

    def widths(token_ids: Iterable[int]) -> list[int]:
        texts = model.tokenizer.batch_decode([[int(i)] for i in token_ids], skip_special_tokens=True)
        return [max(len(text), 1) for text in texts]

    spread = np.concatenate(
        [
            np.full(width, logprob / width)
            for width, logprob in zip(widths(rollout.token_ids), rollout.logprobs, strict=True)
        ]
    )
    ends = np.cumsum(widths(ids))
    starts = np.concatenate([[0], ends[:-1]])
    return np.array([spread[a:b].sum() for a, b in zip(starts, ends, strict=True)], dtype=np.float32)


class Late(LocalEngine):
    """Samples from weights of its own that are ``lag`` deliveries old; None: from the first ones for ever.

    claims: whether it says that it has the newest version all the same.
    """

    def __init__(self, model: LoadedModel, *, lag: int | None, claims: bool) -> None:
        super().__init__(as_loaded(copy.deepcopy(model.module), model.tokenizer))
        self.lag, self.claims = lag, claims
        self.waiting: deque[tuple[list[tuple[str, torch.Tensor]], int]] = deque()
        self.filled = False

    async def load_weights(self, source: WeightSource, version: int) -> None:
        snapshot = [(name, tensor.detach().clone()) for name, tensor in source]
        self.waiting.append((snapshot, version))
        if not self.filled or (self.lag is not None and len(self.waiting) > self.lag):
            self.filled = True
            weights, own = self.waiting.popleft()
            await super().load_weights(iter(weights), own)
        if self.lag is None:
            self.waiting.clear()
        if self.claims:
            self.version = version
