"""Words that mathematics is written with: phrases that are answers, and words that are never a unit."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

from trimtab.rewards.mathematics.normal import TEXT_BEGINS, TEXT_ENDS

_FUNCTIONS = (
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan arccot exp ln log sqrt abs cbrt floor ceil"
)
FUNCTION_WORDS = {
    **{name: name for name in _FUNCTIONS.split()},
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "frac": "frac",
    "binom": "binom",
    "lg": "lg",
}
"""Functions by the words for them in plain text."""
CONSTANT_WORDS = {"pi": "pi", "infinity": "infty", "inf": "infty", "infty": "infty", "theta": "theta"}
JOINING = frozenset({"or", "and"})

_PHRASES = {
    "no solution": "no solutions|no real solution|no real solutions|there is no solution|no such solution"
    "|there are no solutions|there are no real solutions|there is no real solution|there exists no solution"
    "|has no solution|no solution exists",
    "does not exist": "dne|doesn't exist|the limit does not exist",
    "infinitely many": "infinitely many solutions|infinite solutions|infinite number of solutions"
    "|there are infinitely many solutions|an infinite number of solutions",
    "undefined": "not defined|is undefined",
    "none": "none of these|none of the above",
    "all reals": "all real numbers|every real number|any real number|all real x",
    "empty set": "the empty set",
    "infinity": "positive infinity",
    "minus infinity": "negative infinity",
}
SAME_PHRASE = {said: one for one, others in _PHRASES.items() for said in (one, *others.split("|"))}
"""Phrases that are answers, in one spelling each."""

_CHANGING = """
    not no non or and nor but if when where then than less more fewer greater least most between over under
    plus minus times by divided squared cubed is are was be isn't aren't wrong incorrect false right correct
    true yes maybe perhaps probably possibly approximately about around roughly nearly almost only other
    another anything something nothing never neither either both all any some every except rather instead
    answer solution option choice guess think believe sure unsure clearly definitely point negative positive
    half halves quarter quarters third thirds fourth fourths fifth fifths sixth sixths seventh sevenths eighth
    eighths ninth ninths tenth tenths hundredth hundredths thousandth thousandths millionth millionths
    one two three four five six seven eight nine ten hundred thousand million billion trillion dozen gross
    lakh crore pair pairs couple double triple twice fold pi infinity root square-root factorial modulo mod
    remainder inverse reciprocal complement conjugate transpose opposite off short away to from with without
    so because since however wait hmm actually also too etc question unknown undefined
"""
SHORT_WORDS = frozenset({"odd", "red", "tie", "day", "mon", "tue", "wed", "thu", "fri", "sat", "sun"})
"""Words of three letters that are no product of them, also outside ``\\text{...}``."""
NEVER_A_UNIT = frozenset(_CHANGING.split())
"""After a number these words change or deny it, so no reading may drop them."""

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES["dozen"] = 12

_ARTICLE = re.compile(r"^(?:an?|the)\s+")


def plain_words(spelling: str) -> str | None:
    """The words of a normal spelling in lower case, when it is nothing but words; else None."""
    text = spelling.replace(TEXT_BEGINS, " ").replace(TEXT_ENDS, " ").replace("*", "")
    text = re.sub(r"\s+", " ", text).strip(' .!"')
    if not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ ,.'/()-])*", text):
        return None
    text = re.sub(r"\s*,\s*", ", ", text.casefold())
    return without_article(text)


def without_article(text: str) -> str:
    """``an ellipse`` is ``ellipse``."""
    return _ARTICLE.sub("", text)


def phrase(spelling: str) -> str | None:
    """The known phrase that this spelling is, in its one form; None when it is none."""
    words = plain_words(spelling)
    return None if words is None else _BY_SPELLING.get(words)


_BY_SPELLING = {said: one for known, one in SAME_PHRASE.items() for said in (known, known.replace(" ", ""))}
"""With their blanks or without all of them: some data sets have lost theirs."""
