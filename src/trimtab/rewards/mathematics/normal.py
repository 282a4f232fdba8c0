"""The normal spelling of an answer: one line of plain LaTeX without spacing, fonts, sizes and dressing.

``\\text{...}`` becomes its content between two marks, so that words stay words: ``\\text{ab}`` is a word,
``ab`` a product. Nothing that changes the meaning is dropped: words, signs and units all stay.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import unicodedata

from trimtab.rewards.mathematics.signs import LOWERED, RAISED, SIGNS

TEXT_BEGINS, TEXT_ENDS, ROW_ENDS = "\x02", "\x03", "\x04"
"""Marks in the normal spelling: around what was in ``\\text{...}``, and for ``\\\\``."""

_TEXT = "text|textbf|textit|textrm|textsf|texttt|textnormal|textsc|mbox|hbox|emph|mathrm|operatorname|rm"
_FONT = "mathbf|boldsymbol|bm|mathit|mathsf|mathtt|mathnormal|pmb|bold"
_TEXT_COMMAND = re.compile(rf"\\(?:{_TEXT})\*?\s*\{{")
_FONT_COMMAND = re.compile(rf"\\(?:{_FONT})(?![A-Za-z])\s*")
_PHANTOM = re.compile(r"\\[hv]?phantom\s*\{[^{}]*\}|\\[hv]space\*?\s*\{[^{}]*\}|\\(?:label|tag)\s*\{[^{}]*\}")
_SIZE = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|[bB]igg?[lrm]?|bf|it|rm|"
    r"strut|hfill|mathstrut|nonumber|notag)(?![A-Za-z])"
)
_SPACE = re.compile(r"\\[,;:> ]|\\q?quad|\\(?:enspace|thinspace|medspace|thickspace)(?![A-Za-z])|~")
_NOTHING = re.compile(r"(?<=,)\\!\s*|\\!|\\allowbreak(?![A-Za-z])|\\left\s*\.|\\right\s*\.")
_RAISED = re.compile(f"[{''.join(RAISED)}]+")
_LOWERED = re.compile(f"[{''.join(LOWERED)}]+")
_PRIME = re.compile(r"\^\s*\{\s*(?:\\prime\s*)+\}|\^?\s*\\prime(?![A-Za-z])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def normal(text: str) -> str:
    """The normal spelling. Runs in linear time; an unclosed ``\\text{`` reaches to the end."""
    text = "".join(sign for sign in text if sign not in (TEXT_BEGINS, TEXT_ENDS, ROW_ENDS))
    text = unicodedata.normalize("NFC", text).translate(SIGNS)
    text = _RAISED.sub(lambda found: f"^{{{''.join(RAISED[sign] for sign in found[0])}}}", text)
    text = _LOWERED.sub(lambda found: f"_{{{''.join(LOWERED[sign] for sign in found[0])}}}", text)
    text = _PRIME.sub(lambda found: "'" * found[0].count("prime"), _with_rows(text))
    for pattern, instead in (
        (_NOTHING, ""),
        (_PHANTOM, " "),
        (_SIZE, " "),
        (_FONT_COMMAND, " "),
        (_SPACE, " "),
    ):
        text = pattern.sub(instead, text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d)", ",", text)
    return undressed(_without_delimiters(_with_marked_words(text)))


def closing(text: str, start: int) -> int:
    """Where the brace that was opened just before ``start`` closes; the text's length when it never does."""
    depth = 1
    for found in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    return len(text)


def _with_rows(text: str) -> str:
    """``\\\\`` as a mark, its ``[2pt]`` dropped. In an answer escaped twice ``\\\\frac`` is ``\\frac``."""
    if r"\\begin" in text:
        text = text.replace("\\\\", "\\")
    elif r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z{}%$(\[,;])", r"\\", text)
    return re.sub(r"\\\\(?:\s*\[[^\]]{0,20}\])?", ROW_ENDS, text)


def _with_marked_words(text: str) -> str:
    """The content of each ``\\text{...}`` between the two marks; inner ones belong to the outer."""
    pieces: list[str] = []
    at = 0
    while (found := _TEXT_COMMAND.search(text, at)) is not None:
        end = closing(text, found.end())
        inside = text[found.end() : end]
        inside = _TEXT_COMMAND.sub("", inside).replace("}", "") if "{" in inside else inside
        pieces += [text[at : found.start()], TEXT_BEGINS, inside, TEXT_ENDS]
        at = end + 1
    return "".join([*pieces, text[at:]])


def _without_delimiters(text: str) -> str:
    """Without the signs that begin and end mathematics. A lone ``$`` before a digit is a dollar."""
    text = re.sub(r"\\[()\[\]]", " ", text).replace("$$", " ")
    if len(re.findall(r"(?<!\\)\$", text)) % 2 == 0:
        return re.sub(r"(?<!\\)\$", " ", text)
    return re.sub(r"(?<!\\)\$(?!\s*[\d.])", " ", re.sub(r"(?<!\\)\$(?=\s*[\d.])", r"\\$", text))


def undressed(text: str) -> str:
    """Without what stands around an answer and says nothing: stars, backticks, braces, a final dot, ``=``."""
    text = re.sub(r"\s+", " ", text).strip()
    while True:
        shorter = text.strip(f" {ROW_ENDS}")
        if shorter.startswith("=") and not shorter.startswith("=="):
            shorter = shorter[1:]
        shorter = shorter.removeprefix("\\approx ").removeprefix("\\approx")
        if shorter.endswith("\\"):
            shorter = shorter[:-1]
        if shorter.endswith((".", ",", ";")) and not shorter.endswith(".."):
            shorter = shorter[:-1]
        if shorter.startswith("{") and closing(shorter, 1) == len(shorter) - 1 and not _lists(shorter[1:-1]):
            shorter = shorter[1:-1]
        shorter = _unstarred(shorter.strip())
        if shorter == text:
            return text
        text = shorter


def _lists(text: str) -> bool:
    """There is a comma outside all brackets: ``{1, 2}`` is a set."""
    depth = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            return True
    return False


def _unstarred(text: str) -> str:
    """Without Markdown's emphasis: at both ends, or half of it at one."""
    for mark in ("**", "*", "`", "__"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            return text[len(mark) : -len(mark)].strip()
    return text.removesuffix("**").removeprefix("**").strip() if text.count("**") == 1 else text
