"""What an importer has read: foreign numbers by step, answers, and what could not be read."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Framework = Literal["trl", "verl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user says because no file does.

    updates_per_step: optimizer steps of the other trainer in one step of the loop; None finds out.
    outcome: the reward function whose value is the grade; None takes the only one.
    scale: rewards of a wrong and of a right answer; None takes 0 and 1, or the only two that occur.
    group_size: answers a prompt, which splits a prompt that was drawn twice in a step.
    """

    updates_per_step: int | None = None
    outcome: str | None = None
    scale: tuple[float, float] | None = None
    group_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Numbers that the other trainer logged together. ``at`` is its own step, ``time`` seconds since 1970."""

    at: int
    values: Mapping[str, float]
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer as the other trainer wrote it down.

    rewards: each reward function's own value; reward: what was optimised; None where it is not told.
    """

    prompt: str
    text: str
    reward: float | None
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    advantage: float | None = None
    gold: Any = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Everything read from one place, with foreign names and step numbers.

    entries: ascending. answers: files by foreign step, read one at a time by ``read``, which adds to the
    complaints. first: number of the first optimizer step. end: how the source says that it ended.
    complaints: what was damaged or left out, a sentence each. modified: seconds since 1970, of the files.
    known: what else run.json should keep.
    """

    kind: str
    framework: Framework | None
    entries: tuple[Entry, ...]
    answers: Mapping[int, Path] = field(default_factory=dict[int, Path])
    read: Callable[[Path, list[str]], tuple[Answer, ...]] = field(default=lambda path, complaints: ())
    first: int = 1
    end: str = ""
    complaints: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    modified: float = 0.0
    known: Mapping[str, Any] = field(default_factory=dict[str, Any])
