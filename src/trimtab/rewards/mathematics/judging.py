"""The verdict on two texts, an answer and a gold, with the reason in words."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from trimtab.rewards.mathematics.choices import choice_of, gold_choice
from trimtab.rewards.mathematics.comparison import Comparison, Verdict
from trimtab.rewards.mathematics.equality import Equality
from trimtab.rewards.mathematics.evaluation import TooLarge
from trimtab.rewards.mathematics.expressions import is_infinite, letters
from trimtab.rewards.mathematics.forms import Form, Items, Named, Value, Words
from trimtab.rewards.mathematics.normal import TEXT_BEGINS, TEXT_ENDS, closing, normal
from trimtab.rewards.mathematics.reading import LONGEST_ANSWER, read
from trimtab.rewards.mathematics.tokens import Unreadable
from trimtab.rewards.mathematics.words import CONSTANT_WORDS, FUNCTION_WORDS, plain_words

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


class Judgement(NamedTuple):
    """True, False or None (these rules cannot decide), and why."""

    verdict: Verdict
    reason: str


def unboxed(gold: str) -> str:
    """What is in the last box of a gold answer; all of it where there is no closed box."""
    boxes = list(_BOX.finditer(gold))
    if not boxes:
        return gold.strip()
    end = closing(gold, boxes[-1].end())
    return gold[boxes[-1].end() : end].strip() if end < len(gold) else gold.strip()


def judge(answer: str, gold: str, tolerance: float = 0.0) -> Judgement:
    """Is ``answer`` equivalent to ``gold``? Raises nothing, whatever stands in the two."""
    shown = f"{_short(answer)} and {_short(gold)}"
    if len(answer) > LONGEST_ANSWER:
        return Judgement(False, f"an answer of {len(answer)} characters")
    if (chosen := gold_choice(gold)) is not None:
        given = choice_of(answer)
        if given is not None and given.letter == chosen.letter:
            if given.option and chosen.option:
                return judge(given.option, chosen.option, tolerance)
            return Judgement(True, f"{shown} choose the same letter")
        if given is not None or not chosen.option:
            return Judgement(False, f"{shown} do not choose the same letter")
        return judge(answer, chosen.option, tolerance)
    if _unmarked(answer) == _unmarked(gold):
        return Judgement(True, f"{shown} are written the same")
    try:
        wanted = read_gold(gold)
    except Unreadable as fault:
        return Judgement(None, f"{_short(gold)} cannot be read: {fault}")
    if isinstance(wanted, Words) and _unmarked(answer).casefold() == _unmarked(gold).casefold():
        return Judgement(True, f"{shown} are the same words")
    try:
        verdict = _compared(read(answer), wanted, answer, gold, tolerance)
    except Unreadable as fault:
        return Judgement(False, f"{_short(answer)} cannot be read: {fault}")
    except TooLarge as fault:
        return Judgement(False, f"{shown} are too large to compare: {fault}")
    if verdict is None:
        return Judgement(None, f"our rules cannot decide about {shown}")
    return Judgement(verdict, f"{shown} are {'' if verdict else 'not '}equivalent")


def _unmarked(text: str) -> str:
    """The normal spelling without blanks at its marks of words."""
    return re.sub(f" ?[{TEXT_BEGINS}{TEXT_ENDS}] ?", " ", normal(text)).strip()


@lru_cache(maxsize=16_384)
def read_gold(gold: str) -> Form:
    """The form of a gold answer. Raises Unreadable."""
    return read(gold)


def _compared(given: Form, wanted: Form, answer: str, gold: str, tolerance: float) -> Verdict:
    """The verdict on the first reading, or on another one where the two sides differ in sort."""
    verdict = Comparison(tolerance).same(given, wanted)
    if verdict is True:
        return True
    if isinstance(given, Words) != isinstance(wanted, Words):  # "odd" is a word to one, o*d*d to the other
        words = plain_words(normal(answer))
        return words is not None and words == plain_words(normal(gold))
    if _has_unit(given) != _has_unit(wanted):
        again = read(answer, letters_as_units=True), read(gold, letters_as_units=True)
        if _has_unit(again[0]) and _has_unit(again[1]):
            return Comparison(tolerance).same(*again)
    if _is_list(given) != _is_list(wanted) and re.search(r"\d,\d{3}", answer + gold):
        again = read(answer, commas_separate=True), read(gold, commas_separate=True)
        if _is_list(again[0]) and _is_list(again[1]):
            return Comparison(tolerance).same(*again)
    return verdict


def _inner(form: Form) -> Form:
    return form.form if isinstance(form, Named) else form


def _has_unit(form: Form) -> bool:
    form = _inner(form)
    return isinstance(form, Value) and form.unit is not None


def _is_list(form: Form) -> bool:
    form = _inner(form)
    return isinstance(form, Items) and not form.ordered and len(form.items) > 1


class GoldFault(NamedTuple):
    """Why a gold answer cannot be graded against. ``symbolic``: the symbolic checker may read it."""

    reason: str
    symbolic: bool = False


@lru_cache(maxsize=65_536)
def gold_fault(gold: str) -> GoldFault | None:
    """Why these rules cannot grade against this gold answer; None when they can."""
    if not gold.strip():
        return GoldFault("the gold answer is empty")
    if gold_choice(gold) is not None:
        return None
    try:
        form = read_gold(gold)
    except Unreadable as fault:
        return GoldFault(f"the gold answer {_short(gold)} cannot be read: {fault}", symbolic="\\" in gold)
    if loose := _loose_words(form, gold):
        return GoldFault(
            f"the gold answer {_short(gold)} is neither mathematics nor a phrase that this grader knows; "
            f"write \\text{{{loose}}}, or use the grader answer"
        )
    return None if _has_value(form) else GoldFault(f"the gold answer {_short(gold)} has no value")


def _has_value(form: Form) -> bool:
    """False for 1/0 and the like."""
    if not isinstance(form, Value) or letters(form.expression) or is_infinite(form.expression):
        return True
    return Equality().has_value(form.expression)


def _loose_words(form: Form, gold: str) -> str:
    """Several plain words in a row that are not marked as text: they may be anything."""
    for part in form.items if isinstance(form, Items) else (form,):
        part = _inner(part)
        if isinstance(part, Words) and not part.marked and " " in part.text.strip():
            return part.text
    words = gold.split()
    letters_only = all(re.fullmatch(r"[A-Za-z]{2,}", word) for word in words)
    known = {word.lower() for word in words} & (FUNCTION_WORDS.keys() | CONSTANT_WORDS.keys())
    return gold.strip() if isinstance(form, Value) and len(words) > 1 and letters_only and not known else ""


def canonical(answer: str) -> str:
    """One spelling for answers that are seen to be equal without comparing; votes are counted by it."""
    choice = choice_of(answer)
    if choice is not None:
        return choice.letter
    try:
        form = _inner(read(answer))
    except Unreadable:
        return re.sub(r"\s+", "", normal(answer[:LONGEST_ANSWER]).casefold())
    if isinstance(form, Value) and form.unit is None and not letters(form.expression):
        return repr(Equality().folded(form.expression))
    return repr(form)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
