"""Costs fitted on recorded runs: least squares on relative errors, never below 0, and a mild prior.

sampling of a step     a * ticks + b * (row ticks + PREFILL_SHARE * prompt tokens)
update                 c * updates + d * tokens
pass before updates    the same from the forward part of updates
rest                   the same with steps

Ticks and row ticks come from the recorded lengths by the same batching as in the simulation. Runs of one size
cannot tell a from b; then the prior decides (each half), and ``one_size`` says so.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

import numpy as np

from trimtab.errors import DataError
from trimtab.planning.costs import Assumptions, Costs, StageCost, sync_seconds
from trimtab.planning.decoding import Dealing, DecodeCost, sample_round
from trimtab.planning.figures import Figure, Origin
from trimtab.planning.hardware import Device
from trimtab.planning.lengths import Ints
from trimtab.planning.recording import Recording, StepSeen
from trimtab.planning.shape import ModelShape
from trimtab.planning.timeline import Cores
from trimtab.planning.workload import Split

PREFILL_SHARE = 0.5
"""A prompt's token costs this share of a row of a tick; assumed: products over many tokens run faster."""

TICK, ROW = DecodeCost(fixed=1.0), DecodeCost(per_row=1.0, prefill=PREFILL_SHARE)
"""Costs that make a round's seconds its ticks, and its row ticks."""

PRIOR = 0.002
HALF, TENTH = 0.5, 0.1
STAGES = frozenset({"sample", "grade", "annotate", "update", "sync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """seconds = first * x + second * y. error: median |residual| / seconds. spread: how far y / x varies."""

    first: float
    second: float
    error: float
    spread: float
    points: int

    @property
    def one_size(self) -> bool:
        return self.spread < 0.1


def fit(x: Sequence[float], y: Sequence[float], seconds: Sequence[float], prior: float) -> Fit:
    """Non-negative least squares on relative errors, outliers damped.

    prior: the share of the first term at the mean point, held with the weight PRIOR.
    """
    usable = [(p, q, s) for p, q, s in zip(x, y, seconds, strict=True) if s > 0.0]
    if not usable:
        return Fit(first=0.0, second=0.0, error=0.0, spread=0.0, points=0)
    points = np.array(usable, dtype=np.float64)
    table, target = points[:, :2] / points[:, 2:], np.ones(len(points))
    held = np.array([table[:, 0].mean(), 0.0]), np.array([0.0, table[:, 1].mean()])
    weights = np.ones(len(points))
    pull = np.sqrt(PRIOR * len(points))
    found = np.zeros(2)
    for _ in range(10):
        rows = np.vstack([table * weights[:, None], pull * held[0], pull * held[1]])
        wanted = np.append(target * weights, [pull * prior, pull * (1.0 - prior)])
        found = _non_negative(rows, wanted)
        off = np.abs(table @ found - target)
        weights = np.sqrt(1.0 / np.maximum(off, max(1e-3, float(np.median(off)))))
        weights /= weights.max()
    off = np.abs(table @ found - target)
    ratio = points[:, 1] / np.maximum(points[:, 0], 1e-12)
    spread = float((np.quantile(ratio, 0.9) - np.quantile(ratio, 0.1)) / max(float(ratio.mean()), 1e-12))
    return Fit(
        first=float(found[0]),
        second=float(found[1]),
        error=float(np.median(off)),
        spread=spread,
        points=len(points),
    )


def _non_negative(table: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The best of all least-squares solutions on subsets of the columns that are nowhere negative."""
    best, least = np.zeros(table.shape[1]), float((target**2).sum())
    for size in range(1, table.shape[1] + 1):
        for columns in combinations(range(table.shape[1]), size):
            own = np.linalg.lstsq(table[:, columns], target, rcond=None)[0]
            loss = float(((table[:, columns] @ own - target) ** 2).sum())
            if (own >= 0.0).all() and loss < least:
                best, least = np.zeros(table.shape[1]), loss
                best[list(columns)] = own
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """Costs of the machine that the recordings come from, for other splits of it.

    Update tokens divide over trainers as if nothing travelled but what ``sync_seconds`` counts; engines are
    as fast as the recorded ones; ``sync`` is the recorded one where engines had processes of their own.
    """

    base: Costs
    sampling: Fit
    updating: Fit
    shape: ModelShape
    device: Device
    assumed: Assumptions
    weight_bytes: float
    sources: str
    sync_measured: bool
    measured: bool = True

    def costs(self, split: Split) -> Costs:
        """See ``CostSource``."""
        if not split.engines:
            return replace(self.base, sync=0.0 if self.sync_measured else self.base.sync)
        if self.sync_measured:
            return self.base
        return replace(
            self.base, sync=sync_seconds(self.shape, self.device, self.assumed, split, self.weight_bytes)
        )

    @property
    def cores(self) -> Cores:
        """Cores that the processes share; none where each has a device of its own."""
        return Cores(count=self.device.cores, threads=self.device.threads, slowdown=self.device.slowdown)

    def figures(self) -> list[Figure]:
        """The fitted costs, and what of them is not from the recordings."""
        base, measured = self.base, Origin.MEASURED
        how = f"fitted on {self.sources}, {self.sampling.points} steps"
        how += f", off by {self.sampling.error:.0%} at the median"
        if self.sampling.one_size:
            how += "; one batch size only, so a tick's and a row's share are half assumed"
        told = [
            Figure("sampling: a tick", base.decode.fixed, "s", measured, how),
            Figure("sampling: a row of a tick", base.decode.per_row, "s", measured, how),
            Figure(
                "sampling: a prompt's token", base.decode.prefill, "s", Origin.ASSUMED, "half a row's cost"
            ),
            Figure("update: fixed", base.update.fixed, "s", measured, f"{self.updating.points} steps"),
            Figure(
                "update: a token", base.update.per_token, "s", measured, f"off by {self.updating.error:.0%}"
            ),
            Figure(
                "pass before updates: a token",
                base.annotate.per_token,
                "s",
                measured,
                "forward part of updates",
            ),
            Figure("grading: an answer", base.grade, "s", measured, "added seconds over answers"),
            Figure("rest of a step", base.rest.fixed, "s", measured, "step less its stages, the fixed part"),
        ]
        if self.sync_measured:
            told.append(Figure("delivery of weights", base.sync, "s", measured, "median"))
        kept = (
            ("slowdown on busy cores",)
            if self.sync_measured
            else ("slowdown on busy cores", "link within a node")
        )
        return [*told, *(figure for figure in self.device.figures() if figure.name in kept)]


def fit_costs(
    recordings: Sequence[Recording],
    shape: ModelShape,
    device: Device,
    assumed: Assumptions,
    *,
    slots: int = 256,
    weight_bytes: float = 4.0,
) -> MeasuredCosts:
    """Fit the costs on synchronous recordings with at most one engine; more engines give the slowdown only.

    Raises DataError where no recording is synchronous.
    """
    usable = [r for r in recordings if r.synchronous and r.steps]
    plain = [r for r in usable if r.run.cluster.engines <= 1 and r.run.cluster.trainers <= 1]
    if not plain:
        raise DataError(
            "stage costs are fitted on synchronous runs with at most one engine and one trainer, and none of "
            "the given runs is one with recorded steps; their lengths can still be used with --hardware"
        )
    own = [r for r in plain if r.run.cluster.engines == 1]
    seen = [(r, step) for r in plain for step in r.settled]
    sampling = _fit_sampling([(r, s) for r, s in seen if not own or r in own], slots)
    updates = [float(r.run.trainer.updates_per_step * r.run.trainer.epochs) for r, _ in seen]
    tokens = [_tokens(r, s) for r, s in seen]
    trained = [t * r.run.trainer.epochs for t, (r, _) in zip(tokens, seen, strict=True)]
    updating = fit(updates, trained, [s.seconds.get("update", 0.0) for _, s in seen], TENTH)
    forward = fit(updates, trained, [s.seconds.get("update/forward", 0.0) for _, s in seen], TENTH)
    left = [max(0.0, s.seconds["step"] - sum(s.seconds.get(k, 0.0) for k in STAGES)) for _, s in seen]
    rest = fit([1.0] * len(seen), [float(sum(int(g.sum()) for g in s.trained)) for _, s in seen], left, HALF)
    graded = [s.seconds.get("grade", 0.0) / max(1, sum(map(_answers, s.rounds))) for _, s in seen]
    base = Costs(
        decode=DecodeCost(
            fixed=sampling.first, per_row=sampling.second, prefill=PREFILL_SHARE * sampling.second
        ),
        update=StageCost(fixed=updating.first, per_token=updating.second),
        annotate=StageCost(fixed=forward.first, per_token=forward.second),
        sync=median([s.seconds.get("sync", 0.0) for r, s in seen if not own or r in own]),
        grade=median(graded),
        rest=StageCost(fixed=rest.first, per_token=rest.second),
    )
    return MeasuredCosts(
        base=base,
        sampling=sampling,
        updating=updating,
        shape=shape,
        device=_with_slowdown(device, usable, base.decode, slots),
        assumed=assumed,
        weight_bytes=weight_bytes,
        sources=", ".join(r.name for r in plain),
        sync_measured=bool(own),
    )


def _fit_sampling(seen: Sequence[tuple[Recording, StepSeen]], slots: int) -> Fit:
    """a and b of the formula above."""
    ticks = [_sampling(recording, step, slots, TICK) for recording, step in seen]
    rows = [_sampling(recording, step, slots, ROW) for recording, step in seen]
    return fit(ticks, rows, [step.seconds.get("sample", 0.0) for _, step in seen], HALF)


def _sampling(recording: Recording, step: StepSeen, slots: int, cost: DecodeCost) -> float:
    """Seconds of a recorded step's rounds at these costs. Raises DataError for groups of different sizes."""
    cluster, seconds = recording.run.cluster, 0.0
    for groups in step.rounds:
        if len({len(group) for group in groups}) != 1:
            raise DataError(
                f"{recording.name}: groups of different sizes in one step; they cannot be replayed"
            )
        lengths = np.stack(groups)
        count, answers = lengths.shape
        dealing = Dealing.of(cluster.engine, count, answers, cluster.engines, slots)
        engines = max(1, cluster.engines)
        seconds += sample_round(lengths, recording.prompt, dealing, engines, slots, cost).seconds
    return seconds


def _with_slowdown(device: Device, usable: Sequence[Recording], decode: DecodeCost, slots: int) -> Device:
    """The device with the slowdown that recorded rounds of two or more engines at once show."""
    ratios: list[float] = []
    for r in usable:
        engines = r.run.cluster.engines
        if engines < 2 or not device.cores or engines * device.threads > device.cores:
            continue
        for step in r.settled:
            alone = _sampling(r, step, slots, decode)
            if alone:
                ratios.append(step.seconds.get("sample", 0.0) / alone)
    if not ratios:
        return device
    seen = f"{len(ratios)} steps with several engines"
    return replace(device, slowdown=max(1.0, median(ratios)), slowdown_from=seen)


def _tokens(recording: Recording, step: StepSeen) -> float:
    """Tokens of the groups a step trained on, prompts once a group."""
    return float(sum(int(group.sum()) for group in step.trained) + recording.prompt * len(step.trained))


def _answers(groups: Sequence[Ints]) -> int:
    return sum(len(group) for group in groups)
