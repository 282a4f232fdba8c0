"""A Bradley-Terry reward model from pairs of answers.

    P(chosen beats rejected) = sigmoid(r(x, chosen) - r(x, rejected))
    loss = mean over pairs of  -log P  +  centring * (r_chosen + r_rejected)^2

Only differences of r mean anything; the small second term keeps their middle at 0. Held-out pairs are those
of held-out prompts, so that no pair of a prompt is on both sides.

Source: Bradley and Terry 1952; Ouyang et al. 2022, https://arxiv.org/abs/2203.02155; the centring term is
from Eisenstein et al. 2023, https://arxiv.org/abs/2312.09244.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from trimtab.errors import DataError, RunError, SettingError, nearest
from trimtab.rewards.classifier import Classifier, Row, load_classifier
from trimtab.rewards.pairs import Pair
from trimtab.rewards.shown import FORMS, READS, Form, Reads, concluded


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceConfig:
    """How a reward model is trained.

    model: a language model that gets a new head, or a reward model that is trained further.
    epochs, batch: passes over the pairs, and pairs in an update. micro_batch: pairs in a forward.
    learning_rate, warmup: AdamW's rate rises over this share of the updates and then falls to 0 (cosine).
    centring: weight of the term that keeps rewards around 0. max_norm: gradients are scaled down to it.
    held_out: share of the prompts, chosen by their hash, whose pairs only measure.
    form, reads: how prompt and answer are put together, and which part of an answer; kept with the model.
    max_tokens: longer pairs are left out and counted; None for the model's context.
    """

    model: str
    epochs: int = 1
    batch: int = 32
    micro_batch: int = 8
    learning_rate: float = 1e-5
    warmup: float = 0.05
    weight_decay: float = 0.0
    centring: float = 0.01
    max_norm: float = 1.0
    held_out: float = 0.1
    form: Form = "auto"
    reads: Reads = "conclusion"
    max_tokens: int | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "micro_batch"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} of a reward model must be >= 1, got {getattr(self, name)}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise SettingError(f"max_tokens of a reward model must be >= 1, got {self.max_tokens}")
        for name, most in (("learning_rate", math.inf), ("max_norm", math.inf), ("held_out", 1.0)):
            if not 0.0 < getattr(self, name) < most:
                raise SettingError(
                    f"{name} of a reward model must be in (0, {most:g}), got {getattr(self, name)}"
                )
        if not (0.0 <= self.warmup < 1.0 and self.centring >= 0.0 and self.weight_decay >= 0.0):
            raise SettingError("warmup of a reward model must be in [0, 1), centring and weight_decay >= 0")
        for name, known in (("form", FORMS), ("reads", READS)):
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise SettingError(f"{name} of a reward model cannot be {given!r}{nearest(given, known)}")


class Compared(NamedTuple):
    """A pair as two rows of ids, with the pair itself."""

    chosen: Row
    rejected: Row
    pair: Pair


class Split(NamedTuple):
    """Pairs to train on and to measure with; how many were too long or equal in what is read of them."""

    train: list[Compared]
    held_out: list[Compared]
    too_long: int
    equal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceProgress:
    """After ``update`` of ``updates``: loss (nats a pair) and share of its pairs that it ranks right."""

    update: int
    updates: int
    loss: float
    accuracy: float


def load_start(config: PreferenceConfig) -> Classifier:
    """The model to train, in float32. Raises DataError, SettingError."""
    state = torch.random.get_rng_state()
    torch.manual_seed(config.seed)  # the new head
    try:
        return load_classifier(
            config.model, form=config.form, device=config.device, dtype="float32", fresh_head=True
        )
    finally:
        torch.random.set_rng_state(state)


def split(pairs: Sequence[Pair], model: Classifier, config: PreferenceConfig) -> Split:
    """Pairs as ids, by the side their prompt is on. Raises DataError when a side is empty."""
    reach = min(model.context, config.max_tokens or model.context)
    sides: dict[bool, list[Compared]] = {False: [], True: []}
    too_long = equal = 0
    for pair in pairs:
        chosen, rejected = (read_of(pair.prompt, text, config.reads) for text in (pair.chosen, pair.rejected))
        if chosen == rejected:
            equal += 1
            continue
        rows = Compared(model.row(pair.prompt, chosen), model.row(pair.prompt, rejected), pair)
        if max(len(rows.chosen.ids), len(rows.rejected.ids)) > reach:
            too_long += 1
            continue
        sides[is_held_out(pair, config.held_out)].append(rows)
    for side, name in ((sides[False], "to train on"), (sides[True], "held out")):
        if not side:
            raise DataError(
                f"of {len(pairs)} pairs, {too_long} longer than {reach} tokens and {equal} equal in what is "
                f"read of them, none is left {name}; give more pairs, or change held_out, now "
                f"{config.held_out:g}"
            )
    return Split(sides[False], sides[True], too_long, equal)


def read_of(prompt: object, response: str, reads: Reads) -> str:
    """The part of a response that the model is shown."""
    if reads == "all":
        return response
    return concluded(prompt if isinstance(prompt, str) else "", response).strip()


def is_held_out(pair: Pair, share: float) -> bool:
    """Decided by the prompt alone, so that a file that grows never moves a prompt to the other side."""
    told = json.dumps(pair.prompt if isinstance(pair.prompt, str) else [dict(m) for m in pair.prompt])
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big") < share * 2**64


def train(
    model: Classifier,
    pairs: Sequence[Compared],
    config: PreferenceConfig,
    progress: Callable[[PreferenceProgress], None],
) -> list[float]:
    """Train in place; the loss of each update. Raises RunError when a loss is not finite."""
    updates = config.epochs * math.ceil(len(pairs) / config.batch)
    optimizer = torch.optim.AdamW(
        model.module.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    losses: list[float] = []
    model.module.train()
    try:
        for number, batch in enumerate(_batches(pairs, config), 1):
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * rate_at(number, updates, config.warmup)
            loss, right = _backward(model, batch, config)
            if not math.isfinite(loss):
                raise RunError(f"the loss of update {number} is {loss}; lower learning_rate")
            torch.nn.utils.clip_grad_norm_(model.module.parameters(), config.max_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss)
            accuracy = right / len(batch)
            progress(PreferenceProgress(update=number, updates=updates, loss=loss, accuracy=accuracy))
    finally:
        model.module.eval()
    return losses


@torch.no_grad()
def score(model: Classifier, pairs: Sequence[Compared], micro_batch: int) -> Tensor:
    """[N, 2] float64 on the CPU: the rewards of chosen and rejected."""
    order = sorted(range(len(pairs)), key=lambda i: -_width(pairs[i]))
    found = torch.empty(len(pairs), 2, dtype=torch.float64)
    for start in range(0, len(order), micro_batch):
        here = order[start : start + micro_batch]
        with _autocast(model):
            chosen, rejected = _rewards(model, [pairs[i] for i in here])
        found[here] = torch.stack([chosen, rejected], dim=1).double().cpu()
    return found


def rate_at(number: int, updates: int, warmup: float) -> float:
    """The share of the learning rate at update ``number`` (from 1): a linear rise, then half a cosine."""
    rising = math.ceil(warmup * updates)
    if number <= rising:
        return number / rising
    return 0.5 * (1.0 + math.cos(math.pi * (number - rising - 1) / max(1, updates - rising)))


def _backward(model: Classifier, batch: Sequence[Compared], config: PreferenceConfig) -> tuple[float, int]:
    """Gradients of the mean loss of a batch, in micro-batches; the loss, and the pairs ranked right."""
    loss, right = 0.0, 0
    ordered = sorted(batch, key=lambda pair: -_width(pair))
    for start in range(0, len(ordered), config.micro_batch):
        with _autocast(model):
            chosen, rejected = _rewards(model, ordered[start : start + config.micro_batch])
        each = -logsigmoid(chosen - rejected) + config.centring * (chosen + rejected).square()
        part = each.sum() / len(batch)
        part.backward()
        loss += float(part.detach())
        right += int((chosen > rejected).sum())
    return loss, right


def _rewards(model: Classifier, pairs: Sequence[Compared]) -> tuple[Tensor, Tensor]:
    both = model.scores([pair.chosen for pair in pairs] + [pair.rejected for pair in pairs])
    return both[: len(pairs)], both[len(pairs) :]


def _batches(pairs: Sequence[Compared], config: PreferenceConfig) -> Iterator[list[Compared]]:
    for epoch in range(config.epochs):
        order = list(range(len(pairs)))
        random.Random(f"{config.seed}/{epoch}").shuffle(order)
        for start in range(0, len(order), config.batch):
            yield [pairs[i] for i in order[start : start + config.batch]]


def _autocast(model: Classifier) -> torch.autocast:
    """bfloat16 matrix products on a CUDA device that has them; weights and loss stay float32."""
    device = model.module.device.type
    enabled = device == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled)


def _width(pair: Compared) -> int:
    return max(len(pair.chosen.ids), len(pair.rejected.ids))
