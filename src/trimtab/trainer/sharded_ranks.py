"""Ranks of torch.distributed that hold one trainer: how work is dealt to them, and how numbers come together.

Weights of a loss belong to the whole update, so losses and gradients of ranks are summed and never averaged,
and a column is made of bits that exactly one rank gives.
Control messages are small CPU tensors (gloo), so that they never wait for a GPU's stream.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.trainer.faults import NotFiniteError
from trimtab.trainer.sharded_group import Group
from trimtab.trainer.together import Cutting, Parts, Share
from trimtab.types import Batch

FINER = (1.0, 1.1, 1.25, 1.5, 2.0)
"""Tries to cut micro-batches as small as all ranks need, in multiples of the mean share of a rank."""

BITS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16}


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Implements ``Together`` over a ``Group``."""

    group: Group

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def size(self) -> int:
        return self.group.size

    # ------------------------------------------------------------------------------------ work

    def cut(self, cutting: Cutting, limit: int) -> tuple[Batch, Parts]:
        batch, parts = cutting(limit)
        wanted = self.size * -(-len(parts) // self.size)
        if len(parts) == wanted:
            return batch, parts
        mean = -(-sum(_sizes(batch, parts)) // wanted)
        for factor in FINER:
            finer = math.ceil(mean * factor)
            if finer >= limit:
                break
            other, smaller = cutting(finer)
            if len(smaller) <= wanted:
                return other, smaller
        return batch, parts

    def share(self, batch: Batch, parts: Parts) -> Share:
        """Largest first, as many at a time as there are ranks, the largest to whoever has had least.

        So all ranks are in parts of about one size at any moment, which matters since every layer waits for
        all. Where parts run out, a rank reads a sequence of two tokens that nobody else sees, with weight 0.
        """
        if self.size == 1 or not parts:
            return Share(batch, parts)
        sizes = _sizes(batch, parts)
        order = sorted(range(len(parts)), key=lambda i: (-sizes[i], i))
        idle = batch.num_sequences
        dealt: list[list[Sequence[int]]] = [[] for _ in range(self.size)]
        taken = [0] * self.size
        for start in range(0, len(order), self.size):
            now = order[start : start + self.size]
            by_least = sorted(range(self.size), key=lambda r: (taken[r], r))
            for place, rank in enumerate(by_least):
                dealt[rank].append(parts[now[place]] if place < len(now) else [idle])
                taken[rank] += sizes[now[place]] if place < len(now) else 0
        owner_S = torch.zeros(idle + 1, dtype=torch.int64)  # what nobody computes is the first rank's to tell
        for rank, passes in enumerate(dealt):
            for part in passes:
                owner_S[list(part)] = rank
        return Share(_with_idle(batch), dealt[self.rank], owner_S == self.rank)

    def rows(self, total: int) -> tuple[int, int]:
        """As torch cuts a sharded tensor: equal chunks, the last ones shorter or empty."""
        chunk = -(-total // self.size)
        return min(self.rank * chunk, total), min((self.rank + 1) * chunk, total)

    # --------------------------------------------------------------------------------- numbers

    def whole(self, columns: Mapping[str, Tensor], share: Share) -> dict[str, Tensor]:
        if share.mine_S is None or not columns:
            return dict(columns)
        mine = {"_S": share.mine_S[:-1], "_T": share.mine_S[share.batch.seq_T][:-1]}
        parts: list[Tensor] = []
        for name, column in columns.items():
            counts = mine[name[-2:]]
            bits = _bits(column[: len(counts)])
            parts.append(bits.masked_fill_(~counts.view(-1, *[1] * (bits.ndim - 1)), 0))
        flat = torch.cat([part.flatten() for part in parts])
        dist.all_reduce(flat)
        pieces = flat.split([part.numel() for part in parts])
        return {
            name: _from_bits(piece.view(part.shape), column.dtype)
            for (name, column), part, piece in zip(columns.items(), parts, pieces, strict=True)
        }

    def added(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: sum(values) for name, values in self._gathered(numbers).items()}

    def longest(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: max(values) for name, values in self._gathered(numbers).items()}

    def _gathered(self, numbers: Mapping[str, float]) -> dict[str, list[float]]:
        """Each number of every rank, in the order of ranks, so that sums are the same bits everywhere."""
        mine = torch.tensor(list(numbers.values()), dtype=torch.float64)
        if self.size == 1 or not numbers:
            return {name: [number] for name, number in numbers.items()}
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        rows = torch.stack(found, dim=1).tolist()
        return dict(zip(numbers, rows, strict=True))

    def norm(self, tensors: Sequence[Tensor]) -> float:
        if self.size == 1:
            return float(nn.utils.get_total_norm(tensors))
        norms = torch.stack(
            [tensor.norm(dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]
        )
        squares = norms.double().square().sum().cpu()
        return math.sqrt(sum(self._gathered({"squares": float(squares)})["squares"]))

    # ------------------------------------------------------------------------------- decisions

    def first(self, name: str | None, names: Sequence[str]) -> str | None:
        place = torch.tensor(len(names) if name is None else list(names).index(name))
        dist.all_reduce(place, dist.ReduceOp.MIN)
        return None if int(place) == len(names) else names[int(place)]

    def agree(self, fault: RunError | None) -> None:
        """A number that is not finite is told with the rollouts of all ranks that see it in that tensor."""
        message = b"" if fault is None else _packed(fault)
        longest = torch.tensor(len(message))
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        if not int(longest):
            return
        mine = torch.zeros(int(longest), dtype=torch.uint8)
        mine[: len(message)] = torch.tensor(list(message), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        faults = [_unpacked(told) for one in found if (told := bytes(one.tolist()).rstrip(b"\0"))]
        first = faults[0]
        if isinstance(first, NotFiniteError):
            same = [f for f in faults if isinstance(f, NotFiniteError) and f.tensor == first.tensor]
            keys = first.keys if len(same) == 1 else sorted({key for one in same for key in one.keys})
            first = NotFiniteError(first.tensor, keys, spoilt=first.spoilt)
        raise first from fault

    @contextmanager
    def as_one(self) -> Iterator[None]:
        cause: Exception | None = None
        try:
            yield
        except Exception as error:  # told to the others below, who would else wait for this rank
            cause = error
        fault = cause if cause is None or isinstance(cause, RunError) else RunError(self._sentence(cause))
        try:
            self.agree(fault)
        except RunError as agreed:
            raise agreed from cause

    def _sentence(self, cause: Exception) -> str:
        return f"rank {self.rank} of the trainer failed ({type(cause).__name__}: {cause}); see its traceback"


def _packed(fault: RunError) -> bytes:
    if isinstance(fault, NotFiniteError):
        told = {"tensor": fault.tensor, "keys": fault.keys, "spoilt": fault.spoilt}
    else:
        told = {"sentence": str(fault)}
    return json.dumps(told).encode()


def _unpacked(message: bytes) -> RunError:
    told = json.loads(message)
    if "tensor" in told:
        return NotFiniteError(told["tensor"], told["keys"], spoilt=told["spoilt"])
    return RunError(told["sentence"])


def _sizes(batch: Batch, parts: Parts) -> list[int]:
    """Prompt and answer tokens of each micro-batch, a prompt counted for each of its answers."""
    prompt_P = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    size_S = (batch.lengths_S + prompt_P[batch.group_S]).tolist()
    return [sum(size_S[s] for s in part) for part in parts]


def _with_idle(batch: Batch) -> Batch:
    """The batch and one sequence behind it: one token after a prompt of one, masked, all its columns 0."""
    token = batch.prompts_P[0][:1]

    def more(tensor: Tensor, value: float = 0) -> Tensor:
        return torch.cat([tensor, tensor.new_full((1, *tensor.shape[1:]), value)])

    return Batch(
        prompts_P=(*batch.prompts_P, token),
        token_ids_T=torch.cat([batch.token_ids_T, token]),
        seq_T=more(batch.seq_T, batch.num_sequences),
        mask_T=more(batch.mask_T),
        rollout_logprobs_T=more(batch.rollout_logprobs_T),
        group_S=more(batch.group_S, len(batch.prompts_P)),
        rewards_S=more(batch.rewards_S),
        outcomes_S=more(batch.outcomes_S),
        truncated_S=more(batch.truncated_S),
        version_S=more(batch.version_S),
        keys_S=(*batch.keys_S, "idle"),
        columns={name: more(column) for name, column in batch.columns.items()},
    )


def _bits(column: Tensor) -> Tensor:
    """A column as int64 from which ``_from_bits`` makes the same bits again."""
    own = column.detach().cpu().contiguous()
    return (own.view(BITS[own.dtype]) if own.dtype in BITS else own).to(torch.int64, copy=True)


def _from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    return bits.to(BITS[dtype]).view(dtype) if dtype in BITS else bits.to(dtype)
