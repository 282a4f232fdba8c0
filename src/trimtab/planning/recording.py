"""What a recorded run says about cost: its steps' answers, round by round, and the seconds of stages."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.config import Run, run_from_dict
from trimtab.errors import DataError
from trimtab.planning.lengths import Ints, Recorded
from trimtab.planning.simulation import SLOWEST_KEEP_RATE
from trimtab.record.reader import RunReader

if TYPE_CHECKING:
    from trimtab.record.rows import RolloutRow

CHARACTERS_A_TOKEN = 4.0
FIRST_STEPS = 1
"""Steps at the start that only warm the machine; left out where there are more than four."""


@dataclass(frozen=True, slots=True, eq=False)
class StepSeen:
    """One recorded step.

    rounds: lengths of each round's groups. trained: those of the groups it trained on.
    """

    rounds: Sequence[Sequence[Ints]]
    trained: Sequence[Ints]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recorded run. ``wall``: seconds from step to step, by the times at which they were written."""

    name: str
    run: Run
    steps: Sequence[StepSeen]
    lengths: Recorded
    prompt: float
    prompt_counted: bool
    hardware: Mapping[str, Any]
    wall: Sequence[float]

    @property
    def settled(self) -> Sequence[StepSeen]:
        """The steps without the first, which warm the machine."""
        return self.steps[FIRST_STEPS:] if len(self.steps) > 4 else self.steps

    @property
    def synchronous(self) -> bool:
        return self.run.cluster.staleness == 0


def read_recording(path: Path) -> Recording:
    """Read a run's folder. Raises DataError where it holds no rollouts with lengths, or was imported."""
    reader = RunReader(path)
    tables = reader.run.get("run")
    if not isinstance(tables, dict):
        raise DataError(f"{path} does not say how it was run; a plan needs a run of trimtab, not an import")
    run = run_from_dict(tables)
    rows = {step: reader.rollouts(step) for step in reader.rollout_steps()}
    groups = {step: _groups(own) for step, own in rows.items()}
    every = [(group, kept) for own in groups.values() for group, kept, _ in own]
    if not every:
        raise DataError(f"{path} has no recorded rollouts, so lengths are unknown; set record.rollouts")
    steps = _steps(reader, run, groups)
    prompt, counted = _prompt(rows.values())
    times = reader.history.times.values
    first = FIRST_STEPS if len(steps) > 4 else 0
    return Recording(
        name=reader.name,
        run=run,
        steps=steps,
        lengths=Recorded(
            groups=[group for group, _ in every],
            kept=np.array([kept for _, kept in every]),
            how=f"{len(every)} groups of {reader.name}",
        ),
        prompt=prompt,
        prompt_counted=counted,
        hardware=reader.run.get("hardware") or {},
        wall=[float(seconds) for seconds in np.diff(times)[first:]],
    )


def _groups(rows: Sequence[RolloutRow]) -> list[tuple[Ints, bool, bool]]:
    """(lengths, can teach, carried) of each group, in the order of the file. Surplus groups can teach."""
    order: dict[str, list[RolloutRow]] = {}
    for row in rows:
        order.setdefault(row.group, []).append(row)
    return [
        (
            np.array([max(1, row.length) for row in own], dtype=np.int64),
            own[0].kept or own[0].reason == "surplus",
            own[0].carried,
        )
        for own in order.values()
    ]


def _steps(
    reader: RunReader, run: Run, groups: Mapping[int, Sequence[tuple[Ints, bool, bool]]]
) -> list[StepSeen]:
    """Steps of which every fresh group is known."""
    found: list[StepSeen] = []
    rate = 1.0
    selecting = run.build_algorithm().selection is not None
    for step, own in groups.items():
        metrics = reader.history.metrics(step)
        draws, carried_in = int(metrics.get("flow/draws", 0)), sum(carried for *_, carried in own)
        fresh = [(group, kept) for group, kept, carried in own if not carried]
        fresh += [(group, kept) for group, kept, carried in groups.get(step + 1, ()) if carried]
        sizes = _round_sizes(
            fresh, run.sampling.prompts_per_step - carried_in, rate if selecting else None, draws
        )
        if fresh:
            rate = 0.5 * rate + 0.5 * max(sum(kept for _, kept in fresh) / len(fresh), 1e-3)
        stages = {
            key.removeprefix("seconds/"): value
            for key, value in metrics.items()
            if key.startswith("seconds/") and key != "seconds/rewards_share"
        }
        if draws != len(fresh) or "step" not in stages:
            continue
        ends = np.cumsum([0, *sizes])
        rounds = [[group for group, _ in fresh[a:b]] for a, b in pairwise(ends)]
        trained = [group for group, kept, _ in own if kept][: run.sampling.prompts_per_step]
        found.append(StepSeen(rounds, trained, stages))
    return found


def _round_sizes(
    fresh: Sequence[tuple[Ints, bool]], missing: int, rate: float | None, draws: int
) -> list[int]:
    """How many groups each round drew, by the rule of ``loop.collect``."""
    sizes: list[int] = []
    place = kept = 0
    while place < draws and len(fresh) == draws:
        asked = missing if rate is None else math.ceil((missing - kept) / max(rate, SLOWEST_KEEP_RATE))
        size = min(max(1, asked), draws - place)
        kept += sum(keep for _, keep in fresh[place : place + size])
        place += size
        sizes.append(size)
        if rate is not None:
            rate = max(kept / place, 1e-3)
    return sizes


def _prompt(files: Any) -> tuple[float, bool]:
    """(mean tokens of a prompt, whether they were counted): of rows with tokens, else from the characters."""
    counted: dict[str, float] = {}
    guessed: dict[str, float] = {}
    for rows in files:
        for row in rows:
            guessed.setdefault(row.prompt_id, len(row.prompt) / CHARACTERS_A_TOKEN)
            if row.tokens is not None:
                counted[row.prompt_id] = float(len(row.tokens.prompt_token_ids))
    chosen = counted or guessed
    return (sum(chosen.values()) / len(chosen) if chosen else 1.0), bool(counted)
