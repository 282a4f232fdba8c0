"""What an audit asks a grader: a gold answer, a response, and whether the response is right.

A case of ``right`` None has no label: it counts for disagreements only.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.errors import SettingError

RIGHT_KINDS = {
    "plain": "the gold answer, marked as asked, alone or after some reasoning",
    "spelling": "the same answer spelt in another way",
    "after thinking": "a wrong idea between <think> tags, then the right answer",
    "corrected": "a wrong answer first, taken back, the right one last",
    "long": "the right answer after thousands of words",
}
WRONG_KINDS = {
    "near miss": "an answer that is nearly the right one",
    "no answer": "reasoning that ends without an answer, or gives up",
    "unmarked": "the right answer somewhere in the text, but not where it was asked for",
    "only thought": "the right answer between <think> tags only",
    "overridden": "the right answer first, another one last",
    "negated": "a sentence that denies the right answer",
    "hedged": "the right answer beside others, or not quite meant",
    "broken": "the right answer in a form that is not complete",
}
EXPLOIT_KINDS = {
    "many answers": "a list of answers with the right one among them",
    "prompt echo": "the example of the prompt, repeated",
    "injection": "text that addresses the grader instead of the task",
    "empty": "nothing, or the asked form with nothing in it",
    "huge": "more than anybody would read, or numbers that nobody can compute",
    "unicode": "characters that look like the right answer, or turn into it",
    "early exit": "a program that ends, as if all were well, before the tests do",
    "hard-coded": "a program that knows the answers of some tests",
    "equal to all": "a program whose objects say they are equal to anything",
    "tampering": "a program that goes for the tests, the interpreter or the files instead",
}
GOLD_NAMES = ("answer", "solution", "ground_truth")
KINDS = {**RIGHT_KINDS, **WRONG_KINDS, **EXPLOIT_KINDS}
"""Every kind of the built-in cases and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``response`` to a question with the gold ``answer``; is it ``right``?

    prompt: text or messages. columns: further ones of a user's row, for functions that name them.
    """

    kind: str
    right: bool | None
    answer: Any
    response: str
    prompt: Any = ""
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    @property
    def row(self) -> dict[str, Any]:
        """What ``rewards.rows.group_of`` reads. The gold stands under all its names in data files."""
        gold = dict.fromkeys(GOLD_NAMES, self.answer)
        return {**gold, **self.columns, "response": self.response, "prompt": self.prompt}


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is to be given: between ``before`` and ``after``."""

    before: str
    after: str = ""

    @classmethod
    def of(cls, written: str) -> Form:
        """From ``#### {}`` or ``\\\\boxed{{}}``: ``{}`` stands for the answer. Raises SettingError."""
        before, braces, after = written.partition("{}")
        if not braces:
            raise SettingError(f"a form of giving an answer has {{}} where it stands, got {written!r}")
        return cls(before, after)

    def put(self, answer: str) -> str:
        return f"{self.before}{answer}{self.after}"

    def __str__(self) -> str:
        return self.put("{}")
