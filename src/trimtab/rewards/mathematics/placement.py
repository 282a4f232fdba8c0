"""Where the answer stands: the last box that was opened, a declared marker, or the whole response.

1. Only the conclusion counts: what follows the last ``</think>``; nothing, when a ``<think>`` never closes.
2. If a ``\\boxed{`` (or ``\\fbox{``) is opened in it, the last one that is opened decides. It must be closed.
3. Else the last declared marker decides. After a phrase such as ``Answer:`` the answer is the rest of that
   line, or the next line where the rest is empty, or the display formula that begins there; between tags
   such as ``<answer>`` it is what they enclose, and the tag must be closed.
4. Else the whole conclusion is the answer, if it is one line or one display formula.
5. A box or marker that is denied ("is not \\boxed{42}", "not the answer: 13") gives no answer.

No number is ever picked out of running text.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from trimtab.rewards.answer import conclusion
from trimtab.rewards.mathematics.normal import closing

BOX = "\\boxed"
MARKERS = (BOX, "Answer:", "The answer is")
"""The default markers. ``Answer:`` is also ``Final Answer:`` and ``**Answer:**``; case does not count."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_FILLING = (
    r"(?:be|equal(?: to)?|the|an?|my|our|final|correct|right|to|say|think|believe|that|it|is|answer|solution)"
)
_DENIED_BEFORE = re.compile(
    rf"(?:(?:\bnot|n't|\bnever|\bcannot|\bneither|\bnor|\\neq?|≠)(?:\s+{_FILLING})*[\s:*$({{\[\\]*"
    rf"|(?:\bwrong|\bincorrect)(?:[ \t]+{_FILLING})*[ \t:*$({{\[\\]*)\Z",
    re.IGNORECASE,
)
"""Up to the mark. "6 is wrong" on the line before is about 6."""
_RIGHT = (
    r"(?:(?:an?|the|my|our|what|it|final|correct|right)\s+)*"
    r"(?:it|right|correct|valid|true|possible|answer|solution)\b"
)
_DENIED_AFTER = re.compile(
    r"^[\s$)}\]*,\\]*(?:"
    r"(?:(?:which|that|this|it)\s+)?(?:is|was|would be|seems|looks)\s*"
    rf"(?:(?:not|n't)(?:\s+{_RIGHT}|\s*(?:[.,;!?)]|$))|(?:wrong|incorrect|false)\b)"
    r"|\(?(?:wrong|incorrect)\b"
    r"|[.!?]?\s*(?:(?:wait|no|hmm|oops|sorry)\b[,.!]*\s*)*(?:that|this|it)(?:'s|\s+is|\s+was)\s+"
    r"(?:wrong|incorrect|not\s+(?:right|correct))\b)",
    re.IGNORECASE,
)
"""From the mark on. "which is not a prime" denies nothing."""
_HOPE = re.compile(r"[.\s]*\bI hope (?:it|this) is correct\W*$", re.IGNORECASE)
"""The end of a widely used answer format; the one sentence that may follow an answer on its line."""
LONGEST_CONCLUSION = 1_000_000
"""Characters; of a longer one only the end is read."""
_REACH = 60
"""Characters before and after a mark in which a denial is looked for."""
_DISPLAY = (("$$", "$$"), ("\\[", "\\]"))


class Place(NamedTuple):
    """The answer as it stands, or None with the reason why there is none."""

    answer: str | None
    reason: str = ""


def find_answer(response: str, markers: tuple[str, ...] = MARKERS) -> Place:
    """The answer in a response, by the rules above."""
    body = conclusion(response)[-LONGEST_CONCLUSION:]
    if not body.strip():
        return Place(None, "nothing after the thinking")
    if BOX in markers and (boxed := _boxed(body)) is not None:
        return boxed
    places = [place for marker in markers if marker != BOX and (place := _last_mark(body, marker))]
    if places:
        start, end, marker = max(places)
        return _marked(body, start, end, marker)
    return _bare(body)


def _boxed(body: str) -> Place | None:
    """What is in the last box that is opened; None when none is."""
    last = None
    start = max(body.rfind("\\boxed"), body.rfind("\\fbox"))
    while start >= 0 and last is None:
        last = _BOX.match(body, start)
        start = max(body.rfind("\\boxed", 0, start), body.rfind("\\fbox", 0, start))
    if last is None:
        return None
    if not body.startswith("{", last.end()):
        return Place(None, "the last box has no braces")
    begin = last.end() + 1
    end = closing(body, begin)
    if end == len(body):
        return Place(None, "the last box is opened and never closed")
    if _is_denied(body, last.start(), end + 1):
        return Place(None, "the last box is denied")
    inside = body[begin:end].strip()
    return Place(inside or None, "the last box is empty")


def _is_denied(body: str, start: int, end: int) -> bool:
    before, after = body[max(0, start - _REACH) : start], body[end : end + _REACH]
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.search(after))


@lru_cache
def _pattern(marker: str) -> re.Pattern[str]:
    """The marker with emphasis anywhere in it; a phrase starts and ends at word boundaries."""
    stem = marker.strip()
    if is_tag(stem):
        return re.compile(re.escape(stem))
    colon = stem.endswith(":")
    words = r"\s+".join(map(re.escape, stem.removesuffix(":").split()))
    words = words.replace("The\\s+answer", r"The\s+(?:final\s+|correct\s+)?answer")
    start = r"(?<!\w)" if stem[0].isalnum() else ""
    stop = r"\s*\*{0,3}\s*:" if colon else r"(?!\w)" if stem[-1].isalnum() else ""
    return re.compile(start + words + stop, re.IGNORECASE)


def is_tag(marker: str) -> bool:
    """``<answer>`` and the like."""
    return re.fullmatch(r"<\w[\w-]*>", marker.strip()) is not None


def closing_of(marker: str) -> str:
    """The closing tag of a tag; empty for other markers."""
    return marker.strip().replace("<", "</", 1) if is_tag(marker) else ""


def _last_mark(body: str, marker: str) -> tuple[int, int, str] | None:
    found = None
    for found in _pattern(marker).finditer(body):  # noqa: B007  (the last one is wanted)
        pass
    return (found.start(), found.end(), marker) if found else None


def _marked(body: str, start: int, end: int, marker: str) -> Place:
    if _DENIED_BEFORE.search(body[max(0, start - _REACH) : start]):
        return Place(None, f"{marker!r} is denied")
    rest = body[end:]
    if is_tag(marker):
        inside, closed, _ = rest.partition(closing_of(marker))
        if not closed:
            return Place(None, f"{marker} is opened and never closed")
        return Place(inside.strip() or None, f"nothing in {marker}")
    rest = rest.lstrip(" \t*:_")
    line = rest.lstrip()
    for opening, end_mark in _DISPLAY:
        if line.startswith(opening):
            inside, closed, after = line[2:].partition(end_mark)
            ended = closed and not after.partition("\n")[0].strip(" .*")
            return (
                Place(inside.strip(), "")
                if ended and inside.strip()
                else Place(None, "an unfinished formula")
            )
    given, _, after = line.partition("\n")
    if _DENIED_AFTER.search(after[:_REACH]):
        return Place(None, f"{marker!r} is denied")
    given = _HOPE.sub("", given).strip()
    return Place(given or None, f"nothing after {marker!r}")


def _bare(body: str) -> Place:
    """A response that is nothing but a result."""
    text = body.strip()
    for opening, end in _DISPLAY:
        if text.startswith(opening) and text.endswith(end) and len(text) > 4 and opening not in text[2:-2]:
            return Place(text[2:-2].strip())
    if "\n" in text:
        return Place(None, "no box, no marker, and more than one line")
    return Place(text)
