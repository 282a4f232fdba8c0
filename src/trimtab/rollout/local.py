"""The engine for one process: samples from a Hugging Face model on the CPU or one GPU."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trimtab.errors import DataError, RunError
from trimtab.models import LoadedModel, embedding_rows
from trimtab.models.lora import Parameters, has_adapters
from trimtab.rollout.agreement import check_packed, worth_packing
from trimtab.rollout.attention import use_grouped_attention
from trimtab.rollout.checks import CheckResult
from trimtab.rollout.decoding import Decoder
from trimtab.rollout.engine import FAST, Fast, Sampling, rollout_seed
from trimtab.rollout.packed import PackedModel
from trimtab.rollout.rows import Ended, Entry
from trimtab.rollout.stopping import StopTexts
from trimtab.types import Draw, Group, Rollout, WeightSource

SLACK = 8
MODEL_CONTEXT = "the model's context of"
"""Ended rows leave, and new ones enter, once they are an eighth of the batch: moving rows has a cost too."""


@dataclass(frozen=True, slots=True)
class EffectiveSampler:
    """What really decides the next token. Print it: nothing else of the checkpoint's settings is used."""

    temperature: float
    max_new_tokens: int
    stop_ids: tuple[int, ...]
    stop_id_texts: tuple[str, ...]
    stop: tuple[str, ...]
    vocab_size: int
    masked_ids: int

    def __str__(self) -> str:
        ends = ", ".join(f"{i} {text!r}" for i, text in zip(self.stop_ids, self.stop_id_texts, strict=True))
        texts = ", ".join(repr(text) for text in self.stop)
        return (
            f"temperature {self.temperature:g}, no top-p, no top-k, no penalty; "
            f"at most {self.max_new_tokens} tokens; ends at {ends or 'no end token'}"
            f"{f' or the texts {texts}' if texts else ''}; {self.vocab_size} ids"
            f"{f', {self.masked_ids} padding ids masked' if self.masked_ids else ''}"
        )


class LocalEngine:
    """Samples from ``model`` itself; it may be the module that a trainer updates in place.

    At most ``max_sequences`` answers grow at once. A group enters as a whole where it fits. The module
    is put into eval mode before each pass and stays in it.

    fast: "auto" decodes with packed weights (see ``packed``) where the architecture is known, the model is
        not tiny, and a trial at the first call agrees with the module; "always" also where it is tiny;
        "never" always asks the module itself. Packed weights live as long as a call, so that neither an
        update nor its memory ever meets them.
    """

    def __init__(self, model: LoadedModel, *, max_sequences: int = 256, fast: Fast = "auto") -> None:
        if max_sequences < 1:
            raise ValueError(f"max_sequences must be >= 1, got {max_sequences}")
        if fast not in FAST:
            raise ValueError(f"fast must be one of {', '.join(FAST)}, got {fast!r}")
        use_grouped_attention(model.module)
        self.model = model
        self.max_sequences = max_sequences
        self.fast: Fast = fast
        self.agreement: CheckResult | None = None
        """How packed weights compared with the module; None as long as they were not tried."""
        self.version = 0
        self.ticks = 0
        """Tokens of the batch so far: what shows a watcher that it goes on."""

    @property
    def dtype(self) -> torch.dtype:
        """See ``RolloutEngine``."""
        return self.model.dtype

    def describe(self, sampling: Sampling) -> EffectiveSampler:
        """The effective sampler, end tokens with their texts."""
        return effective_sampler(self.model, sampling)

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        """See ``RolloutEngine``. Other tasks run between the tokens, so grading can go on meanwhile.

        When weights are loaded between two groups, running answers go on under the new ones: what
        the old ones left in the cache is computed anew, and the versions of the tokens are recorded.

        Raises: DataError for a prompt that is empty or too long, before anything is sampled;
        RunError when the model's logits stop being finite.
        """
        refuse(draws, n, sampling, self.model.context)
        waiting = deque(self._entries(draws, n, seed, purpose))
        if not waiting:
            return
        decoder = Decoder(
            self.model,
            sampling,
            max_rows=min(self.max_sequences, len(draws) * n),
            longest_prompt=max(len(draw.prompt.token_ids) for draw in draws),
            version=self.version,
            packed=self._packed(),
        )
        texts = StopTexts(sampling.stop, self.model.tokenizer, self.model.vocab_size, self.model.device)
        groups: list[list[Ended]] = [[] for _ in draws]
        while waiting or decoder.live:
            decoder.follow(self.version)
            self._admit(waiting, decoder)
            if decoder.live:
                decoder.step()
                self.ticks += 1
            for ended in decoder.drain():
                groups[ended.owner].append(ended)
                if len(groups[ended.owner]) == n:
                    yield self._group(draws[ended.owner], groups[ended.owner], texts)
                    groups[ended.owner] = []
            await asyncio.sleep(0)

    def _packed(self) -> PackedModel | None:
        """The weights as they are now, packed; None where the module itself is to be asked."""
        refused = self.agreement is not None and not self.agreement.passed
        if refused or not worth_packing(self.model, self.fast):
            return None
        packed = PackedModel(self.model.module, self.model.vocab_size)
        if self.agreement is None:
            self.agreement = check_packed(self.model, packed)
        return packed if self.agreement.passed else None

    def _entries(self, draws: Sequence[Draw], n: int, seed: int, purpose: str) -> list[Entry]:
        """One entry a draw, or several where a group alone is larger than the batch."""
        return [
            Entry(
                owner,
                draw.prompt.id,
                draw.prompt.token_ids,
                first,
                tuple(
                    rollout_seed(seed, purpose, draw.prompt.id, draw.number, index)
                    for index in range(first, min(first + self.max_sequences, n))
                ),
            )
            for owner, draw in enumerate(draws)
            for first in range(0, n, self.max_sequences)
        ]

    def _admit(self, waiting: deque[Entry], decoder: Decoder) -> None:
        """Let ended rows leave when they are many, and waiting groups enter where they fit."""
        worthwhile = decoder.closed * SLACK >= len(decoder.rows)
        if not worthwhile:
            return
        entering, free = [], decoder.free
        while waiting and len(waiting[0].seeds) <= free:
            free -= len(waiting[0].seeds)
            entering.append(waiting.popleft())
        decoder.retire()
        decoder.admit(entering)

    def _group(self, draw: Draw, answers: list[Ended], texts: StopTexts) -> Group:
        answers.sort(key=lambda answer: answer.index)
        decoded = self.model.tokenizer.batch_decode(
            [a.token_ids.tolist() for a in answers], skip_special_tokens=True
        )
        return Group(
            draw=draw,
            rollouts=tuple(
                Rollout(
                    prompt_id=draw.prompt.id,
                    draw=draw.number,
                    index=a.index,
                    token_ids=a.token_ids,
                    logprobs=a.logprobs,
                    mask=np.ones(len(a.token_ids), dtype=np.bool_),
                    finish=a.finish,
                    versions=a.versions,
                    seed=a.seed,
                    text=texts.cut(text),
                )
                for a, text in zip(answers, decoded, strict=True)
            ),
        )

    async def load_weights(self, source: WeightSource, version: int) -> None:
        """Copy ``source`` into the model in place. Tensors that are the model's own cost nothing.

        A module with adapters is a trainer's, which has changed them already; its base is never written to.

        Raises: RunError when a name is unknown, a shape differs, or a parameter was not delivered; when the
        module has adapters and the source is another one.
        """
        if isinstance(source, Parameters) and source.module is self.model.module:
            self.version = version
            return
        if has_adapters(self.model.module):
            raise RunError(
                f"weights of version {version} come from elsewhere, but this engine's model has adapters "
                "that a trainer in this process moves; give the engine a model of its own"
            )
        own = dict(self.model.module.named_parameters(remove_duplicate=False))
        delivered: set[int] = set()
        with torch.no_grad():
            for name, tensor in source:
                target = own.get(name)
                if target is None or target.shape != tensor.shape:
                    shape = "no such parameter" if target is None else tuple(target.shape)
                    raise RunError(
                        f"weights of version {version}: {name!r} came with shape {tuple(tensor.shape)} but "
                        f"the engine has {shape}; trainer and engine must hold the same model"
                    )
                if target.data_ptr() != tensor.data_ptr():
                    target.copy_(tensor)
                delivered.add(target.data_ptr())
        missing = [name for name, target in own.items() if target.data_ptr() not in delivered]
        if missing:
            raise RunError(
                f"weights of version {version} lack {len(missing)} parameters, {missing[0]!r} among them; "
                "the engine would sample from a mixture of two policies"
            )
        self.version = version


def refuse(
    draws: Sequence[Draw], n: int, sampling: Sampling, context: int, limit: str = MODEL_CONTEXT
) -> None:
    """Raises DataError for a prompt that is empty, or too long for the context with its answer.

    limit: what ``context`` is, where it is not the model's own.
    """
    if n < 1:
        raise ValueError(f"a group needs at least one answer, got n = {n}")
    for draw in draws:
        length = len(draw.prompt.token_ids)
        if not length:
            raise DataError(f"prompt {draw.prompt.id!r} has no token; there is nothing to continue")
        if length + sampling.max_new_tokens > context:
            raise DataError(
                f"prompt {draw.prompt.id!r} has {length} tokens, which with sampling.max_new_tokens = "
                f"{sampling.max_new_tokens} is beyond {limit} {context}; "
                "shorten the prompt or lower sampling.max_new_tokens"
            )


def effective_sampler(model: LoadedModel, sampling: Sampling) -> EffectiveSampler:
    """The effective sampler of any engine over this model, end tokens with their texts."""
    texts = tuple(model.tokenizer.convert_ids_to_tokens(list(model.stop_ids)))
    return EffectiveSampler(
        sampling.temperature,
        sampling.max_new_tokens,
        model.stop_ids,
        texts,
        sampling.stop,
        model.vocab_size,
        embedding_rows(model.module) - model.vocab_size,
    )
