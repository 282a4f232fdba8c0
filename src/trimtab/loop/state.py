"""What the loop carries from one step to the next, and how it is written and read back."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trimtab.data.cursor import PromptCursor
from trimtab.data.memory import PromptMemory
from trimtab.errors import DataError
from trimtab.loop.collected import Collected
from trimtab.loop.queued import load_queue, save_queue
from trimtab.record import machine
from trimtab.record.groups import load_groups, save_groups
from trimtab.types import Draw, ScoredGroup


@dataclass(slots=True)
class Counters:
    """Running totals of the run. Draws, rollouts, groups and updates are counted apart.

    ``keep_rate`` is the share of drawn groups that selection kept lately, in (0, 1]: it decides
    how many prompts a refill draws, and is made of counts only, so that a run repeats exactly.
    ``right`` of ``graded`` answers, before selection, since the evaluation before.
    ``empty_steps`` and ``cut_steps`` count steps in a row: without a group to train on, and with hardly an
    answer that ended and none right. ``part_streaks``: see ``notices.constant_parts``. ``redraws`` counts
    prompts drawn again because their answers had become too old to be trained on.
    """

    step: int = 0
    updates: int = 0
    skipped_updates: int = 0
    draws: int = 0
    rollouts: int = 0
    tokens: int = 0
    groups_trained: int = 0
    empty_steps: int = 0
    cut_steps: int = 0
    part_streaks: dict[str, list[float]] = field(default_factory=dict)
    right: int = 0
    graded: int = 0
    keep_rate: float = 1.0
    entropy_coefficient: float | None = None
    redraws: int = 0


@dataclass(slots=True)
class LoopState:
    """The one mutable value of the loop. All of it is in every checkpoint.

    ``held_out`` is the fingerprint of the held-out prompts. ``carried`` are kept groups that an earlier
    step did not need, oldest first; ``queue`` are later steps collected already, next one first, whose effect
    on this state comes with their training; ``again`` are draws that come before the cursor's. ``seconds``
    (by stage), ``train_seconds`` and ``evaluation_seconds`` sum over the whole run; ``began`` is when this
    process began, and ``earlier_seconds`` all time of earlier ones up to the checkpoint that this one goes
    on from, so that no time counts twice. ``evaluations`` are the summaries so far, by label.
    """

    cursor: PromptCursor
    memory: PromptMemory
    held_out: str = ""
    counters: Counters = field(default_factory=Counters)
    carried: list[ScoredGroup] = field(default_factory=list)
    queue: list[Collected] = field(default_factory=list)
    again: list[Draw] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    evaluations: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    earlier_seconds: float = 0.0
    earlier_peak_bytes: int = 0

    @property
    def total_seconds(self) -> float:
        """All time of the run so far, start-ups and evaluations included."""
        return self.earlier_seconds + time.perf_counter() - self.began

    @property
    def peak_bytes(self) -> int:
        """The most memory, of this machine or its device, that any process of the run has taken."""
        return max(self.earlier_peak_bytes, machine.peak_bytes(), machine.device_peak_bytes() or 0)

    def add_train_seconds(self, stages: Mapping[str, float], total: float) -> None:
        """``total`` seconds of the loop, and what its stages took of them."""
        self.train_seconds += total
        for stage, seconds in stages.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def take_over(self, found: Collected) -> None:
        """What collecting the step did, where another state was used for it: as if it had been this one."""
        while self.cursor.drawn < found.cursor:
            self.cursor.draw()
        for scored in found.fresh:
            self.memory.observe(scored, self.counters.step)
        self.counters.keep_rate = found.keep_rate
        self.carried = list(found.surplus)
        drawn = {scored.group.key for scored in found.fresh}
        self.again = [draw for draw in self.again if draw.key not in drawn]

    def scout(self) -> LoopState:
        """A state of its own to collect later steps with, as this one will be after those of the queue."""
        ahead = LoopState(
            PromptCursor(self.cursor.prompts, self.cursor.seed), PromptMemory(self.memory.config)
        )
        ahead.cursor.restore(self.cursor.state())
        ahead.memory.restore(self.memory.state())
        ahead.counters.step, ahead.counters.keep_rate = self.counters.step, self.counters.keep_rate
        ahead.carried, ahead.again = list(self.carried), list(self.again)
        for found in self.queue:
            ahead.take_over(found)
            ahead.counters.step += 1
        return ahead

    def save(self, folder: Path) -> None:
        """Write ``loop.json``, the carried groups and the queue into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        save_groups(folder / "carried", self.carried)
        save_queue(folder / "queue", self.queue)
        stored = {
            "counters": asdict(self.counters),
            "seconds": self.seconds,
            "train_seconds": self.train_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "total_seconds": self.total_seconds,
            "peak_bytes": self.peak_bytes,
            "evaluations": self.evaluations,
            "held_out": self.held_out,
            "cursor": self.cursor.state(),
            "memory": self.memory.state(),
            "again": [[draw.prompt.id, draw.number] for draw in self.again],
        }
        (folder / "loop.json").write_text(json.dumps(stored), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take back what ``save`` wrote. Raises DataError when the prompts are not the same."""
        stored: dict[str, Any] = json.loads((folder / "loop.json").read_text(encoding="utf-8"))
        if stored["held_out"] != self.held_out:
            raise DataError(
                "this run was begun with other held-out prompts, so its evaluations could not be compared; "
                "resume it with the same data.held_out and the same files, or start a new run"
            )
        self.cursor.restore(stored["cursor"])
        self.memory.restore(stored["memory"])
        self.counters = Counters(**stored["counters"])
        self.seconds = dict(stored["seconds"])
        self.train_seconds = stored["train_seconds"]
        self.evaluation_seconds = stored["evaluation_seconds"]
        self.evaluations = dict(stored["evaluations"])
        self.earlier_seconds, self.earlier_peak_bytes = stored["total_seconds"], stored["peak_bytes"]
        self.carried = list(load_groups(folder / "carried"))
        self.queue = load_queue(folder / "queue")
        prompts = {prompt.id: prompt for prompt in self.cursor.prompts}
        self.again = [Draw(prompts[key], number) for key, number in stored.get("again", [])]
