"""The verdict on two texts, an answer and a gold, with the reason in words."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from trimtab.rewards.mathematics.choices import choice_of, gold_choice
from trimtab.rewards.mathematics.comparison import Comparison, Verdict
from trimtab.rewards.mathematics.evaluation import TooLarge
from trimtab.rewards.mathematics.expressions import letters
from trimtab.rewards.mathematics.forms import Form, Items, Named, Value, Words
from trimtab.rewards.mathematics.normal import closing, normal
from trimtab.rewards.mathematics.reading import read
from trimtab.rewards.mathematics.tokens import Unreadable
from trimtab.rewards.mathematics.words import plain_words

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
    """Is ``answer`` equivalent to ``gold``? Never raises for what stands in the answer.

    Raises Unreadable when the gold cannot be read and the answer is not the same text.
    """
    shown = f"{_short(answer)} and {_short(gold)}"
    if (chosen := gold_choice(gold)) is not None:
        given = choice_of(answer)
        if given is not None and given.letter == chosen.letter:
            if given.option and chosen.option:
                return judge(given.option, chosen.option, tolerance)
            return Judgement(True, f"{shown} choose the same letter")
        if given is not None or not chosen.option:
            return Judgement(False, f"{shown} do not choose the same letter")
        return judge(answer, chosen.option, tolerance)
    if len(answer) < 10_000 and normal(answer) == normal(gold):
        return Judgement(True, f"{shown} are written the same")
    wanted = read_gold(gold)
    try:
        given_form = read(answer)
        verdict = _compared(given_form, wanted, answer, gold, tolerance)
    except Unreadable as fault:
        return Judgement(False, f"{_short(answer)} cannot be read: {fault}")
    except TooLarge as fault:
        return Judgement(False, f"{shown} are too large to compare: {fault}")
    return Judgement(verdict, f"{shown} are {'' if verdict else 'not '}equivalent")


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


def gold_fault(gold: str) -> str | None:
    """Why these rules cannot grade against this gold answer; None when they can."""
    if not gold.strip():
        return "the gold answer is empty"
    if len(_BOX.findall(gold)) > 1:
        return f"the gold answer {_short(gold)} has several boxes; write its parts as one list"
    gold = unboxed(gold)
    if gold_choice(gold) is not None:
        return None
    try:
        form = read_gold(gold)
    except Unreadable as fault:
        return f"the gold answer {_short(gold)} cannot be read: {fault}"
    if loose := _loose_words(form):
        return (
            f"the gold answer {_short(gold)} is neither mathematics nor a phrase that this grader knows; "
            f"write \\text{{{loose}}}, or use the grader answer"
        )
    if judge(gold, gold).verdict is not True:
        return f"the gold answer {_short(gold)} does not grade as right against itself"
    return None


def _loose_words(form: Form) -> str:
    """Several plain words in a row that are not marked as text: they may be anything."""
    for part in form.items if isinstance(form, Items) else (form,):
        part = _inner(part)
        if isinstance(part, Words) and not part.marked and " " in part.text.strip():
            return part.text
    return ""


def canonical(answer: str) -> str:
    """One spelling for answers that these rules can see are equal without comparing: votes are counted by it."""
    choice = choice_of(answer)
    if choice is not None:
        return choice.letter
    try:
        form = _inner(read(answer))
    except Unreadable:
        return re.sub(r"\s+", "", normal(answer[:10_000]).casefold())
    if isinstance(form, Value) and form.unit is None and not letters(form.expression):
        from trimtab.rewards.mathematics.equality import Equality

        return repr(Equality().folded(form.expression))
    return repr(form)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
