"""Words that mathematics is written with: phrases that are answers, and words that are never a unit."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

from trimtab.rewards.mathematics.normal import TEXT_BEGINS, TEXT_ENDS

FUNCTION_WORDS = {
    **{name: name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
    **{name: name for name in ("arcsin", "arccos", "arctan", "arccot", "exp", "ln", "log", "sqrt", "abs")},
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "cbrt": "cbrt", "floor": "floor", "ceil": "ceil"},
    **{"frac": "frac", "binom": "binom", "lg": "lg"},
}
CONSTANT_WORDS = {"pi": "pi", "infinity": "infty", "inf": "infty", "infty": "infty", "theta": "theta"}
JOINING = frozenset({"or", "and"})

SAME_PHRASE = {
    **dict.fromkeys(
        ("no solution", "no solutions", "no real solution", "no real solutions", "there is no solution")
        + ("there are no solutions", "there are no real solutions", "there is no real solution")
        + ("there exists no solution", "no such solution", "has no solution", "no solution exists"),
        "no solution",
    ),
    **dict.fromkeys(("does not exist", "dne", "doesn't exist", "the limit does not exist"), "does not exist"),
    **dict.fromkeys(
        ("infinitely many", "infinitely many solutions", "infinite solutions", "infinite number of solutions")
        + ("there are infinitely many solutions", "an infinite number of solutions"),
        "infinitely many",
    ),
    **dict.fromkeys(("undefined", "not defined", "is undefined"), "undefined"),
    **dict.fromkeys(("none", "none of these", "none of the above"), "none"),
    **dict.fromkeys(
        ("all real numbers", "all reals", "every real number", "any real number", "all real x"), "all reals"
    ),
    **dict.fromkeys(("empty set", "the empty set"), "empty set"),
    **dict.fromkeys(("infinity", "positive infinity"), "infinity"),
    **dict.fromkeys(("negative infinity", "minus infinity"), "minus infinity"),
}
"""Phrases that are answers, in one spelling each."""

NEVER_A_UNIT = frozenset(
    "not no non or and nor but if when where then than less more fewer greater least most between over under "
    "plus minus times by divided squared cubed is are was be isn't aren't wrong incorrect false right correct "
    "true yes maybe perhaps probably possibly approximately about around roughly nearly almost only other "
    "another anything something nothing never neither either both all any some every except rather instead "
    "answer solution option choice guess think believe sure unsure clearly definitely point negative positive "
    "half quarter third one two three four five six seven eight nine ten hundred thousand million billion "
    "trillion dozen pi infinity root square-root factorial modulo mod remainder to from with without so "
    "because since however wait hmm actually also too etc question unknown undefined".split()
)
"""After a number these words change or deny it, so no reading may drop them."""

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}

_ARTICLE = re.compile(r"^(?:an?|the)\s+")


def plain_words(spelling: str) -> str | None:
    """The words of a normal spelling in lower case, when it is nothing but words; else None."""
    text = spelling.replace(TEXT_BEGINS, " ").replace(TEXT_ENDS, " ").replace("*", "")
    text = re.sub(r"\s+", " ", text).strip(" .!\"")
    if not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ ,.'/()-])*", text):
        return None
    text = re.sub(r"\s*,\s*", ", ", text.casefold())
    return _ARTICLE.sub("", text)


def phrase(spelling: str) -> str | None:
    """The known phrase that this spelling is, in its one form; None when it is none."""
    words = plain_words(spelling)
    return None if words is None else _BY_LETTERS.get(words.replace(" ", ""))


_BY_LETTERS = {known.replace(" ", ""): one for known, one in SAME_PHRASE.items()}
"""Without blanks: some data sets have lost theirs."""
