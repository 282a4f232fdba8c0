"""Answer match: exact text, plain numbers, multiple choice; strict about where the answer stands.

Where: after the declared marker, and the last marker counts. After a prefix such as ``####`` or
``Answer:`` the answer is the rest of that line (or the next line with something on it, when the rest
is empty). Between tags such as ``<answer>`` the last *opened* tag decides and must be closed. With
``last-line`` it is the last line that is not empty. A response that is nothing but the right answer
counts as marked. Anything else is wrong, not ungradable: no number is ever picked out of the text, and a
denied marker ("the answer is not #### 7") gives none.
Thinking is not an answer: only what follows the last ``</think>`` is read.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from trimtab.errors import SettingError, nearest
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.numbers import parse_number
from trimtab.types import Grade, GradeState, Prompt, Rollout

Kind = Literal["auto", "exact", "number", "choice"]
KINDS = ("auto", "exact", "number", "choice")
LAST_LINE = "last-line"
MOST_LAYERS = 8
"""Dressings around one another that are taken off; thousands are no emphasis, and would take long."""

_DENIED = re.compile(r"(?:\bnot|n't|\bnever|\bcannot be)[ \t:*_(]*$", re.IGNORECASE)
_BLANKS = re.compile("(?<=\\d)([\u00a0\u2007\u2009\u202f])(?=\\d)|\\s+")
_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:)]?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMatch:
    """Grades right or wrong by comparing the marked answer with ``prompt.answer``.

    marker: ``####``, ``Answer:``, ``<answer>`` (any literal prefix or tag), or ``last-line``.
        A prefix that ends with a letter or colon must start at a word boundary, in the same case.
    kind: ``number`` compares exact values (0.5 = 1/2 = .50), ``choice`` one letter ((B) = b. = B),
        ``exact`` the text without emphasis, final dot, case and runs of blanks. ``auto`` takes what
        the gold answer is: a number, one capital letter, else text.
    tolerance: numbers agree when |a - gold| <= tolerance * max(1, |gold|). 0 means exactly: 0.3333 is
        not 1/3.
    case_sensitive: for ``exact``.

    A gold answer that does not grade as right in its own marked form is ``not_gradable`` for every
    rollout, and listed by ``self_check``.
    """

    marker: str = "####"
    kind: Kind = "auto"
    tolerance: float = 0.0
    case_sensitive: bool = False
    name: str = "answer"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingError(f"grader {self.name!r} has no kind {self.kind!r}{nearest(self.kind, KINDS)}")
        if not self.marker.strip():
            raise SettingError(f'grader {self.name!r} needs a marker, for example "####" or "last-line"')
        if not 0.0 <= self.tolerance < 1.0:
            raise SettingError(f"grader {self.name!r}: tolerance must be in [0, 1), got {self.tolerance}")

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        reason = self.fault_of(prompt.answer)
        if reason is not None:
            return Grade(state=GradeState.NOT_GRADABLE, value=None, detail=reason)
        return self._compare(str(prompt.answer), self._prefilled(prompt) + rollout.text)

    def read(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The answer given, in one spelling for equal answers (``1,000`` and ``1000.0`` are ``1000``).

        None where nothing is marked and the response is not one line.
        """
        given = self.given(prompt, rollout)
        kind = self._kind_of("" if prompt.answer is None else str(prompt.answer))
        return None if given is None else str(self._canonical(given, kind)) or None

    def given(self, prompt: Prompt, rollout: Rollout) -> str | None:
        """The answer as it is written; None where nothing is marked and the response is not one line."""
        body = conclusion(self._prefilled(prompt) + rollout.text)
        given = self._marked(body)
        if given is None and (self._opened(body) or "\n" in body.strip()):
            return None
        return body.strip() if given is None else given

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """Every gold answer that does not grade as right in its own marked form."""
        found = [(prompt, self.fault_of(prompt.answer)) for prompt in prompts]
        return [Unverifiable(p.id, repr(p.answer), reason) for p, reason in found if reason is not None]

    def fault_of(self, gold: Any) -> str | None:
        """Why this gold answer cannot be graded against; None when it can."""
        if gold is None or isinstance(gold, bool) or not isinstance(gold, str | int | float):
            return f"the gold answer {gold!r} is neither text nor a number"
        return self._text_fault(str(gold))

    @lru_cache(maxsize=65_536)  # noqa: B019  (graders are few, small, and equal by their settings)
    def _text_fault(self, text: str) -> str | None:
        if not text.strip():
            return "the gold answer is empty"
        kind = self._kind_of(text)
        if kind == "number" and parse_number(clean(text)) is None:
            return f"the gold answer {text!r} is not a plain number"
        if kind == "choice" and not _CHOICE.fullmatch(clean(text)):
            return f"the gold answer {text!r} is not one letter"
        if self._compare(text, self.marked(text)).state is not GradeState.RIGHT:
            return f"the gold answer {text!r} does not grade as right after the marker {self.marker!r}"
        return None

    def marked(self, answer: str) -> str:
        """The answer as a response should give it: behind the marker."""
        if self.marker == LAST_LINE:
            return answer
        return (
            f"{self.marker}{answer}{_closing(self.marker)}"
            if _is_tag(self.marker)
            else f"{self.marker} {answer}"
        )

    def _compare(self, gold: str, response: str) -> Grade:
        kind = self._kind_of(gold)
        body = conclusion(response)
        given = self._marked(body)
        if given is not None:
            equal = self._equal(given, gold, kind)
            return Grade.of(
                float(equal), detail=f"{_short(given)} is {'' if equal else 'not '}{_short(gold)}"
            )
        if not self._opened(body) and self._equal(body, gold, kind):
            return Grade.of(1.0, detail=f"the response is nothing but {_short(gold)}")
        return Grade.of(0.0, detail=f"no answer after the marker {self.marker!r}")

    def _prefilled(self, prompt: Prompt) -> str:
        """What the prompt itself ends with, the marker or ``<think>``: the response goes on from there."""
        tail = prompt.text.rstrip()
        endings = ("<think>",) if self.marker == LAST_LINE else (self.marker.strip(), "<think>")
        return next((ending for ending in endings if tail.endswith(ending)), "")

    def _opened(self, text: str) -> bool:
        return self.marker != LAST_LINE and _pattern(self.marker).search(text) is not None

    def _marked(self, text: str) -> str | None:
        """The text at the marked place; None when there is no such place, or nothing stands there."""
        if self.marker == LAST_LINE:
            lines = [line for line in text.splitlines() if clean(line)]
            return lines[-1].strip() if lines else None
        places = list(_pattern(self.marker).finditer(text))
        if not places:
            return None
        if _DENIED.search(text[max(0, places[-1].start() - 40) : places[-1].start()]):
            return None
        rest = text[places[-1].end() :]
        if _is_tag(self.marker):
            inside, closed, _ = rest.partition(_closing(self.marker))
            return inside.strip() if closed else None
        lines = [line for line in rest.splitlines() if clean(line)]
        return lines[0].strip() if lines else None

    def _kind_of(self, gold: str) -> str:
        if self.kind != "auto":
            return self.kind
        if parse_number(clean(gold)) is not None:
            return "number"
        return "choice" if re.fullmatch(r"\(?[A-Z]\)?", gold.strip(), re.ASCII) else "exact"

    def _equal(self, given: str, gold: str, kind: str) -> bool:
        if kind == "exact" and _unmarked(gold) != gold.strip():
            return given.strip() == gold.strip()
        one, other = self._canonical(given, kind), self._canonical(gold, kind)
        if isinstance(one, Fraction) and isinstance(other, Fraction) and self.tolerance:
            return abs(one - other) <= Fraction(self.tolerance) * max(Fraction(1), abs(other))
        return type(one) is type(other) and one == other and one != ""

    def _canonical(self, given: str, kind: str) -> Fraction | str:
        """Equal for equal answers: a number, a capital letter, or plain text."""
        given = clean(given)
        if kind == "number" and (number := parse_number(given)) is not None:
            return number
        if kind == "choice" and (match := _CHOICE.fullmatch(given)):
            return match[1].upper()
        text = unicodedata.normalize("NFC", given)
        return text if self.case_sensitive else text.casefold()


def conclusion(text: str) -> str:
    """What follows the thinking; empty when a ``<think>`` is opened and never closed."""
    _, closed, after = text.rpartition("</think>")
    rest = after if closed else text
    return "" if "<think>" in rest else rest


def clean(text: str) -> str:
    """The text without emphasis, dollar signs or backticks around it, final dot, and runs of blanks.

    A narrow blank between two digits stays one, since it may group thousands.
    """
    text = _BLANKS.sub(lambda found: "\u202f" if found[1] else " ", text).strip()
    for _ in range(MOST_LAYERS):
        if (stripped := _undotted(_unmarked(text))) == text:
            break
        text = stripped
    return text


def _unmarked(text: str) -> str:
    """Without stars at either end, and without one pair of backticks or dollar signs around it."""
    text = text.strip().strip("*").strip()
    paired = len(text) > 2 and text[0] == text[-1] and text[0] in "`$"
    return text[1:-1].strip() if paired else text


def _undotted(text: str) -> str:
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


@lru_cache
def _pattern(marker: str) -> re.Pattern[str]:
    """The marker in a response; ``**Answer:**`` and ``**Answer**:`` are ``Answer:`` too."""
    stem = marker.strip()
    boundary = r"(?<!\w)" if stem[0].isalnum() else ""
    if stem.endswith(":"):
        return re.compile(rf"{boundary}{re.escape(stem[:-1])}\*{{0,3}}[ \t]*:")
    return re.compile(boundary + re.escape(stem) + (r"(?!\w)" if stem[-1].isalpha() else ""))


def _is_tag(marker: str) -> bool:
    return re.fullmatch(r"<\w[\w-]*>", marker.strip()) is not None


def _closing(marker: str) -> str:
    return marker.strip().replace("<", "</", 1)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
