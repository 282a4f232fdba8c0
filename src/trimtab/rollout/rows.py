"""What enters a decoding batch, what the host knows of its rows, and what leaves it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.types import Finish, FloatArray, IntArray, VersionSpan


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Answers to sample to one prompt: one row for each seed, the first of them being ``index``."""

    owner: int
    prompt_id: str
    token_ids: IntArray
    index: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A complete answer, number ``index`` of ``owner``."""

    owner: int
    index: int
    seed: int
    token_ids: IntArray
    logprobs: FloatArray
    finish: Finish
    versions: tuple[VersionSpan, ...]


@dataclass(slots=True)
class Row:
    """One growing answer.

    prompt: tokens of its prompt. born: tick at which its first token was drawn.
    changes: (policy version, first token drawn by it), oldest first.
    """

    owner: int
    prompt_id: str
    prompt: int
    index: int
    seed: int
    born: int
    changes: list[tuple[int, int]] = field(default_factory=list)
    ended: bool = False

    def spans(self, length: int) -> tuple[VersionSpan, ...]:
        """Which of its ``length`` tokens which policy version drew."""
        ends = [*(start for _, start in self.changes[1:]), length]
        pairs = zip(self.changes, ends, strict=True)
        return tuple(VersionSpan(version, start, end) for (version, start), end in pairs if end > start)
