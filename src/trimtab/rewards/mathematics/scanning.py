"""From a normal spelling to tokens: numbers, letters, words, names, signs."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from dataclasses import replace

from trimtab.rewards.mathematics.normal import ROW_ENDS, TEXT_BEGINS, TEXT_ENDS, closing
from trimtab.rewards.mathematics.signs import GREEK, SAME_COMMAND
from trimtab.rewards.mathematics.tokens import Token, Unreadable
from trimtab.rewards.mathematics.units import LETTER_UNITS, TABLE, UNIT_WORDS
from trimtab.rewards.mathematics.words import (
    CONSTANT_WORDS,
    FUNCTION_WORDS,
    JOINING,
    NEVER_A_UNIT,
    SHORT_WORDS,
)

MAX_TOKENS = 600
MAX_DIGITS = 1000
"""Digits of one written number."""

_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,]*\d)|\d{1,3}(?: \d{3})+(?! ?\d)", re.ASCII)
_NUMBER = re.compile(r"(?:\d+\.\d+|\d+\.(?!\.)|\.\d+|\d+)(?:[eE][+-]?\d{1,4}(?![\w.]))?", re.ASCII)
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_LETTERS = re.compile(r"[A-Za-z]+(?:'t\b)?")
_ENVIRONMENT = re.compile(r"\s*\{(\w+)\*?\}(?:\s*\{[clr|\s]*\})?")
_NAME = re.compile(r"[A-Za-z]{1,3}'{0,2}|\\[A-Za-z]{1,10}")
"""What may stand under an accent: ``\\vec{AB}``."""
_SUBSCRIPT = re.compile(r"\s?_\s?(?:\{([^{}^=<>]{1,20})\}|([A-Za-z0-9])|(\\[A-Za-z]+))")
_ACCENTS = "vec bar hat tilde overline overrightarrow widehat dot ddot underline widetilde"
_ACCENT = frozenset(_ACCENTS.split())
_COMMANDS = """
    frac sqrt binom pi infty le ge ne approx cup cap setminus emptyset in pm mp degree circ langle rangle
    lfloor rfloor lceil rceil mid sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh exp ln
    log lg over reals angle triangle
"""
_NAMES = frozenset(_COMMANDS.split())
_PAIRED = {sign: ("name", name) for sign, name in (("<=", "le"), (">=", "ge"), ("!=", "ne"))}
_PAIRED |= {"**": ("sign", "^"), "==": ("sign", "=")}
_SIGNS = frozenset("+-*/^_!|=<>()[]{},;:&%$€£¥'")


def tokens_of(spelling: str, letters_as_units: bool = False, commas_separate: bool = False) -> list[Token]:
    """All tokens. Raises Unreadable for signs and commands that are none of ours, and for too many."""
    return _Scanner(spelling, letters_as_units, commas_separate).all()


class _Scanner:
    def __init__(self, text: str, letters_as_units: bool, commas_separate: bool) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.textual = False
        self.letters_as_units = letters_as_units
        self.commas_separate = commas_separate
        self.found: list[Token] = []

    def all(self) -> list[Token]:
        while self.at < len(self.text):
            spaced = False
            while self.at < len(self.text) and self.text[self.at] in f" {TEXT_BEGINS}{TEXT_ENDS}":
                mark = self.text[self.at]
                spaced = spaced or mark == " "
                self.textual = mark == TEXT_BEGINS or (self.textual and mark != TEXT_ENDS)
                self.at += 1
            if self.at < len(self.text):
                before = len(self.found)
                self._next()
                if spaced and before < len(self.found):
                    self.found[before] = replace(self.found[before], spaced=True)
            if len(self.found) > MAX_TOKENS:
                raise Unreadable(f"more than {MAX_TOKENS} signs")
        return self.found

    def _add(self, kind: str, text: str) -> None:
        self.found.append(Token(kind, text, textual=self.textual))

    def _next(self) -> None:
        sign = self.text[self.at]
        if sign.isascii() and (
            sign.isdigit() or (sign == "." and self.text[self.at + 1 : self.at + 2].isdigit())
        ):
            self._number()
        elif sign == "\\":
            self._command()
        elif sign == ROW_ENDS:
            self.at += 1
            self._add("row", "")
        elif sign.isalpha():
            self._letters()
        elif sign == "." and self.found and self.found[-1].kind == "word":
            self.at += 1  # sq. cm
        elif sign in _SIGNS:
            self.at += 1
            self.depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
            pair = sign + self.text[self.at : self.at + 1]
            if pair in _PAIRED and not (pair == "!=" and self.found and self.found[-1].kind == "number"):
                self.at += 1
                self._add(*_PAIRED[pair])
                return
            if sign == "'" and self.found and self.found[-1].kind == "letter":
                self.found[-1] = replace(self.found[-1], text=self.found[-1].text + "'")
            else:
                self._add("sign", sign)
        else:
            raise Unreadable(f"the sign {sign!r}")

    def _number(self) -> None:
        grouped = _GROUPED.match(self.text, self.at)
        between = self.depth == 0 and not (self.commas_separate and grouped and "," in grouped[0])
        if grouped and (between or re.search(r"[, ]0", grouped[0])):  # no item of a list begins with 0
            rest = re.compile(r"\.\d+").match(self.text, grouped.end())
            self.at = rest.end() if rest else grouped.end()
            self._add("number", grouped[0].replace(",", "").replace(" ", "") + (rest[0] if rest else ""))
            return
        found = _NUMBER.match(self.text, self.at)
        if found is None or len(found[0]) > MAX_DIGITS:
            raise Unreadable("a number of too many digits")
        self.at = found.end()
        self._add("number", found[0])

    def _letters(self) -> None:
        found = _LETTERS.match(self.text, self.at)
        run = found[0] if found else self.text[self.at]
        self.at += len(run)
        low = run.lower()
        after_value = bool(self.found) and (
            self.found[-1].kind in ("number", "word") or self.found[-1].is_sign("}", ")", "/")
        )
        if low in JOINING and len(run) > 1:
            self._add("join", low)
        elif run in FUNCTION_WORDS and not (after_value and run in UNIT_WORDS and self._ends_here()):
            self._add("name", FUNCTION_WORDS[run])
        elif low in CONSTANT_WORDS:
            self._constant(CONSTANT_WORDS[low])
        elif len(run) == 1:
            unit = (self.letters_as_units or self.textual) and after_value and run in LETTER_UNITS
            self._add("word" if unit else "letter", run)
            self._subscript()
        elif self._is_word(run, after_value):
            self._add("word", run)
        else:
            for letter in run:
                self._add("letter", letter)
            self._subscript()

    def _ends_here(self) -> bool:
        """Nothing follows, or the words do not go on: ``5 sec`` is no secant."""
        return not self.text[self.at :].strip(f" .{TEXT_ENDS}") or self.textual

    def _is_word(self, run: str, after_value: bool) -> bool:
        """A word or a unit; other short runs are products of their letters."""
        low = run.lower()
        if self.textual or len(run) > 3 or low in SHORT_WORDS or (low in NEVER_A_UNIT and not run.isupper()):
            return True
        return after_value and (low in UNIT_WORDS or (self.letters_as_units and low in TABLE))

    def _constant(self, name: str) -> None:
        self._add("letter" if name in GREEK else "name", name)

    def _subscript(self) -> None:
        """A subscript belongs to the name of its letter."""
        found = _SUBSCRIPT.match(self.text, self.at)
        if found and self.found[-1].kind == "letter":
            below = re.sub(rf"[\s{TEXT_BEGINS}{TEXT_ENDS}]", "", found[1] or found[2] or found[3])
            self.found[-1] = replace(self.found[-1], text=f"{self.found[-1].text}_{below}")
            self.at = found.end()

    def _command(self) -> None:
        found = _COMMAND.match(self.text, self.at)
        if found is None:
            raise Unreadable("a backslash at the end")
        self.at = found.end()
        name = SAME_COMMAND.get(found[1], found[1])
        if name in ("or", "and"):
            self._add("join", name)
        elif name in ("{", "}"):
            self.depth += 1 if name == "{" else -1
            self._add("sign", f"\\{name}")
        elif name in ("%", "$", "<", ">", "*", "/", ":", "|", "[", "]"):
            self._add("sign", name)
        elif name in ("begin", "end"):
            self._environment(name)
        elif name in GREEK:
            self._add("letter", name)
            self._subscript()
        elif name in ("mathbb", "mathcal", "Bbb", "mathscr", "mathfrak", "R"):
            self._blackboard(name)
        elif name in _ACCENT:
            self._accent(name)
        elif name in _NAMES:
            self._add("name", name)
        else:
            raise Unreadable(f"the command \\{name}")

    def _environment(self, name: str) -> None:
        found = _ENVIRONMENT.match(self.text, self.at)
        if found is None:
            raise Unreadable(f"\\{name} without a name")
        self.at = found.end()
        self.depth += 1 if name == "begin" else -1
        self._add(name, found[1])

    def _argument(self) -> str:
        """The raw argument of a command: a group, or one sign."""
        while self.text.startswith(" ", self.at):
            self.at += 1
        if self.text.startswith("{", self.at):
            end = closing(self.text, self.at + 1)
            inside, self.at = self.text[self.at + 1 : end], end + 1
        else:
            inside, self.at = self.text[self.at : self.at + 1], self.at + 1
        return re.sub(rf"[\s{TEXT_BEGINS}{TEXT_ENDS}]", "", inside)

    def _blackboard(self, name: str) -> None:
        letter = "R" if name == "R" else self._argument()
        if name in ("mathbb", "Bbb", "R") and letter == "R":
            self._add("name", "reals")
        else:
            self._add("letter", f"{name} {letter}")
            self._subscript()

    def _accent(self, name: str) -> None:
        inside = self._argument()
        last = self.found[-1] if self.found else None
        repeats = name in ("overline", "dot", "bar") and re.fullmatch(r"[0-9]{1,50}", inside)
        if repeats and last is not None and last.kind == "number" and "." in last.text:
            self.found[-1] = replace(last, text=f"{last.text}({inside})")
            return
        if not _NAME.fullmatch(inside):
            raise Unreadable(f"\\{name} of what is no name")
        self._add("letter", f"{name} {inside}")
        self._subscript()
