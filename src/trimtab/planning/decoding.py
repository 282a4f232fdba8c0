"""Continuous batching in engines: when each answer of a round ends, without a loop over ticks.

A tick gives every running answer one more token. With R answers running that hold C tokens of context in
all it takes

    fixed + max(per_row * R + per_pair * C,  read(R) + per_context * C)
    read(R) = dense_read + expert_read * (1 - (1 - routed)^R)

the compute and the memory side; the last factor is the expected share of a mixture's experts that R tokens
touch. At which tick an answer ends depends on lengths, deals and slots alone: an answer waits until its deal
is given out and a slot is free. Between two ends R is constant and C grows by R a tick, so the seconds of all
ticks between them have a closed form. A prompt is computed once for a group, when its first answer begins.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappush, heapreplace

import numpy as np

from trimtab.planning.lengths import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCost:
    """Seconds of a tick, as above, and of a prompt's token (``prefill``)."""

    fixed: float = 0.0
    per_row: float = 0.0
    per_pair: float = 0.0
    dense_read: float = 0.0
    expert_read: float = 0.0
    routed: float = 1.0
    per_context: float = 0.0
    prefill: float = 0.0

    def read(self, rows: Floats) -> Floats:
        """Seconds to read the weights that ``rows`` tokens touch."""
        return self.dense_read + self.expert_read * (1.0 - (1.0 - self.routed) ** rows)

    def tick(self, rows: float, context: float) -> float:
        """Seconds of one tick."""
        one = np.array([1.0])
        return float(self.ticks(rows * one, context * one, one)[0])

    def ticks(self, rows_K: Floats, context_K: Floats, count_K: Floats) -> Floats:
        """Seconds of ``count`` ticks [K] that begin with so many rows and so much context."""
        n, pairs = count_K, count_K * (count_K - 1.0) / 2.0
        compute, grows = self.per_row * rows_K + self.per_pair * context_K, self.per_pair * rows_K
        memory, swells = self.read(rows_K) + self.per_context * context_K, self.per_context * rows_K
        return n * (self.fixed + compute) + pairs * grows + _above(memory - compute, swells - grows, n)


def _above(start_K: Floats, slope_K: Floats, count_K: Floats) -> Floats:
    """sum over i < count of max(0, start + slope * i)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = np.where(slope_K == 0.0, 0.0, -start_K / slope_K)
    rising = slope_K > 0.0
    begin = np.where(rising, np.clip(np.ceil(crossing), 0.0, count_K), 0.0)
    falling_end = np.clip(np.floor(crossing) + 1.0, 0.0, count_K)
    end = np.where(slope_K < 0.0, falling_end, count_K)
    end = np.where((slope_K <= 0.0) & (start_K <= 0.0), 0.0, end)
    n = np.maximum(0.0, end - begin)
    return n * start_K + slope_K * n * (begin + end - 1.0) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a round of sampling takes in E engines.

    seconds_E: until the engine's last answer ends. ends_A: seconds at which each answer ends.
    ticks_E, row_ticks_E: ticks, and the sum of running answers over them. context_E: mean context in use.
    """

    seconds_E: Floats
    ends_A: Floats
    ticks_E: Floats
    row_ticks_E: Floats
    context_E: Floats

    @property
    def seconds(self) -> float:
        return float(self.seconds_E.max(initial=0.0))

    @property
    def tail(self) -> float:
        """Seconds at the end in which the last tenth of the answers runs."""
        if not len(self.ends_A):
            return 0.0
        return max(0.0, self.seconds - float(np.quantile(self.ends_A, 0.9)))


@dataclass(frozen=True, slots=True)
class Dealing:
    """How draws reach engines: deals of ``size`` groups, ``at_once`` of them in an engine; who is free takes
    the next. An engine is never given a part of a group.
    """

    size: int
    at_once: int = 1

    @classmethod
    def of(cls, kind: str, groups: int, answers: int, engines: int, slots: int) -> Dealing:
        """As engines of that kind are dealt to: a local one gets its share in two deals, one after the other;
        vLLM gets single draws, three quarters of its share at once. Without engines there is one deal.
        """
        if not engines:
            return cls(max(1, groups))
        if kind == "local":
            return cls(max(1, -(-groups // (2 * engines))))
        return cls(1, max(1, min(-(-3 * groups // (4 * engines)), slots // answers)))

    def dealt(self, lengths_GN: Ints, engines: int) -> tuple[Ints, Ints]:
        """(engine [G], tick [G] at which its deal is given out) of every group."""
        groups = len(lengths_GN)
        longest = np.maximum.reduceat(lengths_GN.max(axis=1), np.arange(0, groups, self.size)) - 1
        places = [(0, place % engines) for place in range(min(engines * self.at_once, len(longest)))]
        given: list[tuple[int, int]] = places[:]
        free = [(int(length), engine) for length, (_, engine) in zip(longest, places, strict=False)]
        heapify(free)
        for length in longest[len(places) :].tolist():
            tick, engine = free[0]
            given.append((tick, engine))
            heapreplace(free, (tick + length, engine))
        table = np.repeat(np.array(given, dtype=np.int64), self.size, axis=0)[:groups]
        return table[:, 1], table[:, 0]


def sample_round(
    lengths_GN: Ints, prompt: float, dealing: Dealing, engines: int, slots: int, cost: DecodeCost
) -> Round:
    """One round: all groups are submitted at once, and it ends with the last answer.

    prompt: tokens of a prompt. slots: answers that an engine runs at once.
    """
    lengths_A = lengths_GN.reshape(-1)
    group_A, engine_A, given_A = (
        np.repeat(column, lengths_GN.shape[1])
        for column in (np.arange(len(lengths_GN)), *dealing.dealt(lengths_GN, engines))
    )
    starts_A = _starts(lengths_A, engine_A, given_A, engines, slots)
    count = len(lengths_A)
    first_A = np.zeros(count)
    first_A[np.unique(engine_A * (group_A.max(initial=0) + 1) + group_A, return_index=True)[1]] = 1.0
    engine = np.concatenate([engine_A, engine_A])
    tick = np.concatenate([starts_A, starts_A + lengths_A - 1])
    begins = np.repeat([1.0, -1.0], count)
    order = np.lexsort((begins, tick, engine))
    engine, tick, begins = engine[order], tick[order], begins[order]
    own = np.concatenate([starts_A, starts_A])[order]
    rows = np.cumsum(begins)
    shift = np.cumsum(begins * (prompt - own))
    follows = np.append(engine[1:] == engine[:-1], False)
    ticks = np.where(follows, np.append(tick[1:], 0) - tick, 0).astype(np.float64)
    busy_rows = np.maximum(rows, 0.0)
    context = np.maximum(busy_rows * tick + shift, 0.0)
    seconds = cost.ticks(busy_rows, context, ticks)
    seconds += np.append(first_A, np.zeros(count))[order] * prompt * cost.prefill
    before = np.cumsum(seconds) - seconds
    begin_E, end_E = (
        np.searchsorted(engine, np.arange(engines)),
        np.searchsorted(engine, np.arange(engines), "right"),
    )
    used = end_E > begin_E
    base_E = np.where(used, before[np.minimum(begin_E, 2 * count - 1)], 0.0)
    ends_A = np.empty(count)
    ending = order >= count
    ends_A[order[ending] - count] = before[ending] - base_E[engine[ending]]
    sums = [_by_engine(engine, w, engines) for w in (seconds, ticks, busy_rows * ticks)]
    held = busy_rows * (ticks * (tick + (ticks - 1) / 2)) + shift * ticks
    held_E = _by_engine(engine, held, engines)
    return Round(sums[0], ends_A, sums[1], sums[2], held_E / np.maximum(sums[1], 1.0))


def _by_engine(engine: Ints, weights: Floats, engines: int) -> Floats:
    return np.bincount(engine, weights=weights, minlength=engines).astype(np.float64)


def _starts(lengths_A: Ints, engine_A: Ints, given_A: Ints, engines: int, slots: int) -> Ints:
    """The tick at which each answer begins: when it is given out, or when a slot of its engine is free."""
    starts_A = given_A.copy()
    counts = np.bincount(engine_A, minlength=engines)
    for engine in np.flatnonzero(counts > slots):
        own = np.flatnonzero(engine_A == engine)
        ends: list[int] = []
        begun: list[int] = []
        for length, given in zip((lengths_A[own] - 1).tolist(), given_A[own].tolist(), strict=True):
            start = given if len(ends) < slots else max(given, ends[0])
            begun.append(start)
            if len(ends) < slots:
                heappush(ends, start + length)
            else:
                heapreplace(ends, start + length)
        starts_A[own] = begun
    return starts_A
