"""What a built-in task is: endless questions with known answers, and an imperfect demonstrator.

A question belongs to ``train`` or ``held_out`` by a hash of its text alone. So the two never meet,
whatever the seed, the count or the order in which they are drawn.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from trimtab.errors import DataError, SettingError

Split = Literal["train", "held_out"]

HELD_OUT_SHARE = 8
"""One question in this many is held out."""

PATIENCE = 1000
"""Questions drawn in a row without a new one before a task is called exhausted."""


class Question(NamedTuple):
    """The text that the model reads, and the answer that counts as right."""

    prompt: str
    answer: str


class Demonstration(NamedTuple):
    """One answer to imitate. ``ended`` says whether the end token follows; a cut one has none."""

    prompt: str
    response: str
    ended: bool = True


@dataclass(frozen=True, kw_only=True)
class Task:
    """A built-in task.

    ask: draws a question. demonstrate: answers it as a human would, slips and rambling included;
    the response ends in ``marker`` and the answer, if the demonstrator does not forget it.
    grader: the built-in grader that knows a right answer: ``answer`` finds it behind ``marker``, ``code``
    runs the program of the response, has no marker, and takes the answer as a list of tests.
    """

    name: str
    summary: str
    marker: str = ""
    grader: str = "answer"
    ask: Callable[[random.Random], Question]
    demonstrate: Callable[[Question, random.Random], Demonstration]

    @property
    def grader_options(self) -> dict[str, str]:
        """The options of ``grader`` in a recipe."""
        return {"marker": self.marker} if self.marker else {}

    def rows(self, split: Split, count: int, seed: int) -> Iterator[dict[str, Any]]:
        """``count`` different rows ``{"id", "prompt", "answer"}``; the same arguments give the same rows.

        Raises SettingError for an unknown split, DataError when the task has too few questions.
        """
        for question in self.questions(split, count, seed):
            yield {
                "id": question_id(self.name, question.prompt),
                "prompt": question.prompt,
                "answer": question.answer,
            }

    def questions(self, split: Split, count: int, seed: int) -> Iterator[Question]:
        """``count`` different questions of one split."""
        if split not in ("train", "held_out"):
            raise SettingError(f"a task has the splits 'train' and 'held_out', not {split!r}")
        rng = random.Random(f"{self.name}|{split}|{seed}")
        seen: set[str] = set()
        misses = 0
        while len(seen) < count:
            question = self.ask(rng)
            if split_of(question.prompt) != split or question.prompt in seen:
                misses += 1
                if misses > PATIENCE:
                    raise DataError(
                        f"task {self.name!r} has about {len(seen)} questions in its {split} split, "
                        f"{count} were asked for; ask for fewer"
                    )
                continue
            misses = 0
            seen.add(question.prompt)
            yield question

    def demonstrations(self, count: int, seed: int) -> Iterator[Demonstration]:
        """``count`` answers to imitate, to questions of the train split only (these may recur)."""
        rng = random.Random(f"{self.name}|demonstrations|{seed}")
        given = 0
        while given < count:
            question = self.ask(rng)
            if split_of(question.prompt) == "train":
                given += 1
                yield self.demonstrate(question, rng)


def split_of(prompt: str) -> Split:
    """The split of a question, from its text alone."""
    digest = hashlib.blake2b(prompt.encode(), digest_size=8).digest()
    return "held_out" if int.from_bytes(digest, "little") % HELD_OUT_SHARE == 0 else "train"


def question_id(task: str, prompt: str) -> str:
    """The stable id of a question, for example ``sums-5f1c0a92b7de4410``."""
    return f"{task}-{hashlib.blake2b(prompt.encode(), digest_size=8, person=b'id').hexdigest()}"
