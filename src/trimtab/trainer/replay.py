"""An update that was not finite, computed again: where it begins, rollout by rollout.

    weights -> columns of the batch -> forward -> loss -> gradient -> weights after the update

Each stage is looked at in this order, and of each rollout the first bad place counts: everything after it
is its consequence. Hooks on every module tell which one first takes in or gives out a bad number, and at
which token. Nothing is written.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trimtab.objectives.objective import Objective
from trimtab.trainer.faults import NotFiniteError, bad_sequences, numbers_of
from trimtab.trainer.layout import to_device
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.update import cut
from trimtab.types import Batch, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a number is not finite. ``stage``: weights, batch, forward, loss, gradient or update.

    where: a weight, a column or a module, in words. rollout: its key; token: of its answer, from 0,
    negative: of its prompt, counted from the prompt's end. value: the number as it is written (nan, inf).
    """

    stage: str
    where: str
    value: str
    rollout: str | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of it. ``places`` in the order of the stages; empty where everything was finite.

    loss, grad_norm: of the whole update; None where it was not computed.
    """

    places: tuple[Place, ...]
    loss: float | None = None
    grad_norm: float | None = None

    @property
    def finite(self) -> bool:
        return not self.places


async def replay_update(trainer: LocalTrainer, batch: Batch, objective: Objective) -> Replay:
    """Compute the update of ``batch`` with the trainer's weights; they change, so do not go on with them.

    The optimizer steps only where all before it is finite.
    """
    places = [*_weights(trainer, "weights"), *_columns(batch)]
    if any(place.stage == "batch" for place in places):
        return Replay(places=tuple(places))
    if "weights_T" not in batch.columns:
        batch = objective.weighted(batch)
    limit = trainer.config.tokens_per_micro_batch
    skips, cost = trainer.config.skip_silent, trainer.reader.cost
    batch, parts = cut(batch, objective, limit, cost, skip_silent=skips)
    for sequences in parts:
        if not _passes(trainer, batch.select(sequences), objective):
            for sequence in sequences:
                place = _rollout(trainer, batch.select([sequence]), objective)
                places += [] if place is None else [place]
    if places:
        return Replay(places=tuple(places))
    try:
        report = await trainer.update(batch, objective)
    except NotFiniteError as fault:
        stage = "update" if fault.spoilt else "gradient"
        found = _weights(trainer, stage) if fault.spoilt else []
        return Replay(places=tuple(found) or (Place(stage=stage, where=fault.tensor, value="not finite"),))
    return Replay(places=(), loss=report.loss, grad_norm=report.grad_norm)


def _weights(trainer: LocalTrainer, stage: str) -> list[Place]:
    return [
        Place(stage=stage, where=f"the {owned.name}'s {name} at {_index(bad)}", value=_written(weight, bad))
        for owned in trainer.owners
        for name, weight in owned.everything().items()
        if bool((bad := ~weight.isfinite()).any())
    ]


def _columns(batch: Batch) -> list[Place]:
    """Of the first bad column, each rollout's first bad token."""
    for name, column in numbers_of(batch).items():
        sequences = bad_sequences(batch, name, column)
        if sequences:
            return [_in_column(batch, name, column, sequence) for sequence in sequences]
    return []


def _in_column(batch: Batch, name: str, column: Tensor, sequence: int) -> Place:
    if name.endswith("_S"):
        value, token = float(column[sequence]), None
    else:
        own = batch.seq_T == sequence
        bad = ~column[own].isfinite() & batch.mask_T[own]
        token = int(bad.nonzero()[0, 0])
        value = float(column[own][token])
    return Place(stage="batch", where=name, value=_word(value), rollout=batch.keys_S[sequence], token=token)


def _passes(trainer: LocalTrainer, part: Batch, objective: Objective) -> bool:
    """Whether forward, loss and gradient of a micro-batch are finite; leaves no gradient behind."""
    try:
        out, _ = trainer.reader(part, trainer.asked(objective))
        shares, _ = objective(out, to_device(part, out.logprobs_T.device))
        total = torch.stack(list(shares.values())).sum()
        if not bool(total.isfinite()):
            return False
        if total.requires_grad:
            total.backward()
            for owned in trainer.owners:
                owned.absorb()
        return all(bool(g.isfinite().all()) for owned in trainer.owners for g in owned.gradients().values())
    finally:
        for owned in trainer.owners:
            owned.clear()


def _rollout(trainer: LocalTrainer, part: Batch, objective: Objective) -> Place | None:
    """The first bad place of one rollout; None where it is finite on its own."""
    key, prompt = part.keys_S[0], len(part.prompts_P[int(part.group_S[0])])
    modules: dict[str, nn.Module] = {"policy": trainer.model.module}
    if trainer.critic is not None:
        modules["critic"] = trainer.critic
    with _watched(modules) as seen:
        out, _ = trainer.reader.plain()(part, trainer.asked(objective))
    if seen:
        first = seen[0]
        token = first.place if first.place is None or not first.in_row else first.place - prompt
        return Place(stage="forward", where=first.where, value=first.value, rollout=key, token=token)
    shares, trace = objective(out, to_device(part, out.logprobs_T.device))
    made = {"logprobs_T": out.logprobs_T, "entropy_T": out.entropy_T, "values_T": out.values_T}
    for name, column in {**made, **_columns_of(trace)}.items():
        if column is not None and (bad := ~column.detach().cpu().isfinite() & part.mask_T).any():
            token = int(bad.nonzero()[0, 0])
            value = _word(float(column.detach()[token]))
            return Place(stage="loss", where=name, value=value, rollout=key, token=token)
    for name, share in shares.items():
        if not bool(share.isfinite()):
            value = _word(float(share.detach()))
            return Place(stage="loss", where=f"the {name} loss", value=value, rollout=key)
    return _gradient(trainer, torch.stack(list(shares.values())).sum(), key)


def _columns_of(trace: Trace) -> dict[str, Tensor | None]:
    found = {field.name: getattr(trace, field.name) for field in dataclasses.fields(Trace)}
    return {name: t for name, t in found.items() if t is not None and t.is_floating_point()}


def _gradient(trainer: LocalTrainer, total: Tensor, key: str) -> Place | None:
    """The bad gradient nearest to the loss: weights late in the model get theirs first."""
    if not total.requires_grad:
        return None
    total.backward()
    try:
        for owned in trainer.owners:
            owned.absorb()
            for name, gradient in reversed(owned.gradients().items()):
                bad = ~gradient.isfinite()
                if bool(bad.any()):
                    where = f"the gradient of the {owned.name}'s {name} at {_index(bad)}"
                    return Place(stage="gradient", where=where, value=_written(gradient, bad), rollout=key)
    finally:
        for owned in trainer.owners:
            owned.clear()
    return None


class Seen(NamedTuple):
    """A bad number: at which module, in words; at which position of its row or (``in_row`` False) token of
    the answer, None where the tensor has neither; and what it is.
    """

    where: str
    place: int | None
    in_row: bool
    value: str


@contextmanager
def _watched(modules: dict[str, nn.Module]) -> Iterator[list[Seen]]:
    """Collects where modules take in or give out a bad number, in the order of the forward pass."""
    seen: list[Seen] = []
    handles: list[torch.utils.hooks.RemovableHandle] = []

    def look(words: str, tensors: Sequence[object], *, given: bool) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                bad = ~tensor.detach().isfinite()
                if given:  # a mask that goes in may say "never" by minus infinity
                    bad &= tensor.detach() != -math.inf
                if bool(bad.any()):
                    seen.append(Seen(words, *_position(bad), _written(tensor.detach(), bad)))
                    return

    for owner, root in modules.items():
        for name, module in root.named_modules():
            label = f"the {owner}'s {name}" if name else f"the {owner}"
            handles.append(
                module.register_forward_pre_hook(
                    lambda _, taken, label=label: look(f"what goes into {label}", taken, given=True)
                )
            )
            handles.append(
                module.register_forward_hook(
                    lambda _, __, made, label=label: look(
                        f"what comes out of {label}",
                        made if isinstance(made, tuple | list) else (made,),
                        given=False,
                    )
                )
            )
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _position(bad: Tensor) -> tuple[int | None, bool]:
    """The first bad position of a [1, L, ...] tensor of the row; or of [N, V], one entry a token."""
    if bad.ndim < 2:
        return None, False
    in_row = bad.ndim > 2 and bad.shape[0] == 1
    rows = bad[0] if in_row else bad
    return int(rows.reshape(rows.shape[0], -1).any(-1).nonzero()[0, 0]), in_row


def _index(bad: Tensor) -> str:
    return f"[{', '.join(map(str, bad.nonzero()[0].tolist()))}]"


def _written(tensor: Tensor, bad: Tensor) -> str:
    return _word(float(tensor.detach()[bad][0]))


def _word(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
