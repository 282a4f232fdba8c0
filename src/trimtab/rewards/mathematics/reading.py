"""From a text to a form: lists, relations, sets, intervals, tuples, matrices, quantities, words.

Every sign of the text must have its place in the form, else it is Unreadable: "definitely not 42" has no
reading with 42 in it.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Sequence

from trimtab.rewards.mathematics import relations
from trimtab.rewards.mathematics.evaluation import TooLarge
from trimtab.rewards.mathematics.expressions import (
    INFINITY,
    MINUS_ONE,
    Expression,
    PlusMinus,
    Product,
    every,
    negative,
    signed,
)
from trimtab.rewards.mathematics.forms import Form, Items, Matrix, Piece, Ratio, Reals, Value, Words
from trimtab.rewards.mathematics.normal import TEXT_BEGINS, TEXT_ENDS, normal
from trimtab.rewards.mathematics.parsing import Parser
from trimtab.rewards.mathematics.quantities import leading_currency, trailing_unit
from trimtab.rewards.mathematics.scanning import tokens_of
from trimtab.rewards.mathematics.splitting import is_comma, is_enclosed, is_joint, split
from trimtab.rewards.mathematics.tokens import Token, Unreadable
from trimtab.rewards.mathematics.words import phrase, plain_words, without_article

LONGEST_ANSWER = 2_000
"""Characters; a longer answer is not read."""
MAX_ITEMS = 64
ALL_REALS = Reals((Piece(negative(INFINITY), INFINITY, True, True),))
_MATRICES = frozenset({"pmatrix", "bmatrix", "matrix", "smallmatrix", "array", "Bmatrix"})
_TIME = re.compile(r"(\d{1,2}) ?: ?(\d\d) ?([apAP])\.? ?[mM]\.?")
_TEXT = re.compile(f"{TEXT_BEGINS}[^{TEXT_BEGINS}{TEXT_ENDS}]+{TEXT_ENDS}")
_PHRASES: dict[str, Form] = {
    "all reals": ALL_REALS,
    "empty set": Items("{}", ()),
    "no solution": Items("{}", ()),
    "infinity": Value(INFINITY),
    "minus infinity": Value(negative(INFINITY)),
}


def read(text: str, *, letters_as_units: bool = False, commas_separate: bool = False) -> Form:
    """The form of an answer. Raises Unreadable.

    letters_as_units: ``5 m`` is five metres, not five times m. commas_separate: ``1,200`` is a list.
    """
    if len(text) > LONGEST_ANSWER:
        raise Unreadable(f"more than {LONGEST_ANSWER} characters")
    spelling = normal(text)
    if not spelling:
        raise Unreadable("nothing")
    if (known := phrase(spelling)) is not None:
        return _PHRASES.get(known, Words(known, marked=True))
    if (time := _TIME.fullmatch(spelling.replace(TEXT_BEGINS, "").replace(TEXT_ENDS, ""))) is not None:
        return Words(f"{int(time[1])}:{time[2]} {time[3].lower()}m", marked=True)
    try:
        return answer(tokens_of(spelling, letters_as_units, commas_separate))
    except (RecursionError, TooLarge) as fault:
        raise Unreadable(f"nested too deep, or too large: {fault}") from None
    except Unreadable:
        words = plain_words(spelling)
        if words is None and not _TEXT.fullmatch(spelling):
            raise
        return Words(words or spelling[1:-1].strip().casefold(), marked=TEXT_BEGINS in spelling)


def answer(tokens: Sequence[Token]) -> Form:
    """One answer, or several joined by commas, "and", "or"."""
    if (reversed_interval := _french_interval(tokens)) is not None:
        return reversed_interval
    parts, joints = split(tokens, is_joint)
    if len(parts) == 1:
        return relations.relation(parts[0], side)
    if len({joint.text for joint in joints if is_comma(joint)}) == 2:
        groups, _ = split(tokens, lambda token: token.is_sign(";"))
        return relations.groups([answer(group) for group in groups])
    kept = [part for part in parts if part]
    doubled = sum(
        not part and a.is_sign(",") and b.kind == "join"
        for part, a, b in zip(parts[1:], joints, joints[1:], strict=False)
    )
    if len(kept) != len(parts) - doubled or len(kept) > MAX_ITEMS:
        raise Unreadable("nothing between two commas, or too many of them")
    joined = (
        "and" if any(joint.text == "and" for joint in joints) else "or" if joints[-1].kind == "join" else ","
    )
    return relations.several([relations.relation(part, side) for part in kept], joined)


def side(tokens: Sequence[Token]) -> Form:
    """One side of a relation: a set, an interval, a tuple, a matrix, a ratio, a quantity, words."""
    if not tokens:
        raise Unreadable("nothing on one side")
    if all(token.kind == "word" or (token.textual and token.kind == "letter") for token in tokens) and (
        any(token.kind == "word" for token in tokens)
    ):
        said = without_article(" ".join(token.text for token in tokens).lower())
        return Words(said, all(token.textual for token in tokens))
    if len(tokens) > 1 and all(_is_run(token, at) for at, token in enumerate(tokens)):
        return Words("".join(token.text for token in tokens).lower(), marked=True)  # TFT is not TTF
    parts, cuts = split(tokens, lambda token: token.is_name("cup", "setminus", "cap"))
    if cuts:
        return relations.combined([side(part) for part in parts], [cut.text for cut in cuts])
    if len(tokens) == 1 and tokens[0].is_name("reals"):
        return ALL_REALS
    if len(tokens) == 1 and tokens[0].is_name("emptyset"):
        return Items("{}", ())
    if any(token.kind == "begin" for token in tokens):
        return _scaled_matrix(tokens)
    if is_enclosed(tokens) and (inside := _enclosed(tokens)) is not None:
        return inside
    return _ratio(tokens) or quantity(tokens)


def _is_run(token: Token, at: int) -> bool:
    """A capital letter, without a blank before it unless it is the first."""
    return (
        token.kind == "letter" and len(token.text) == 1 and token.text.isupper() and not (at and token.spaced)
    )


def quantity(tokens: Sequence[Token]) -> Form:
    """An expression with its unit; two of them where it has a plus-minus sign."""
    tokens, currency = leading_currency(tokens)
    parser = Parser(tokens)
    expression = parser.whole()
    scale, unit = trailing_unit(tokens[parser.at :], currency)
    if scale is not None:
        expression = scale(expression)
    if any(isinstance(node, PlusMinus) for node in every(expression)):
        both = (signed(expression, 1), signed(expression, -1))
        return Items("", tuple(Value(one, unit) for one in both))
    return Value(expression, unit)


def expression_of(tokens: Sequence[Token]) -> Expression:
    """The tokens as one plain expression. Raises Unreadable."""
    form = side(tokens)
    if not isinstance(form, Value) or form.unit is not None:
        raise Unreadable("a value was expected")
    return form.expression


def _enclosed(tokens: Sequence[Token]) -> Form | None:
    """A set, a tuple or an interval; None for mere parentheses."""
    opening, closing, inside = tokens[0].text, tokens[-1].text, tokens[1:-1]
    if opening == "\\{" or (opening == "{" and any(is_comma(token) for token in inside)):
        return _set(inside)
    parts, cuts = split(inside, is_comma)
    if not cuts:
        return Items("[]", (answer(inside),)) if opening == "[" and _is_plain(inside) else None
    brackets = "()" if opening == "langle" else opening + closing
    if len(parts) > MAX_ITEMS:
        raise Unreadable("too many items")
    return _bracketed(brackets, tuple(relations.relation(part, side) for part in parts))


def _is_plain(tokens: Sequence[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].kind in ("number", "letter")


def _bracketed(brackets: str, items: tuple[Form, ...]) -> Form:
    """``(a, b]`` can only be an interval; ``(a, b)`` and ``[a, b]`` stay open to both readings."""
    items_form = Items(brackets, items)
    if brackets in ("(]", "[)"):
        return relations.as_reals(items_form) or _no("an interval with other than two ends")
    return items_form


def _set(inside: Sequence[Token]) -> Form:
    """``{1, 2}``, ``{}`` or ``{x : 0 < x < 1}``."""
    if not inside:
        return Items("{}", ())
    heads, cuts = split(inside, lambda token: token.is_name("mid") or token.is_sign(":", "|"))
    if cuts and (len(heads[0]) == 1 or any(token.is_name("in") for token in heads[0])):
        condition = inside[len(heads[0]) + 1 :]
        built = relations.as_reals(answer(condition))
        return built or _no("a set whose condition is no interval")
    parts, _ = split(inside, is_comma)
    if len(parts) > MAX_ITEMS:
        raise Unreadable("too many items")
    items = tuple(relations.relation(part, side) for part in parts)
    if len(items) == 1 and isinstance(items[0], Items) and items[0].brackets == "":
        return Items("{}", items[0].items)
    return Items("{}", items)


def _no(why: str) -> Form:
    raise Unreadable(why)


def _matrix(tokens: Sequence[Token]) -> Form:
    """The rows between ``\\begin{pmatrix}`` and its end; ``cases`` are several relations."""
    name = tokens[0].text
    if name != tokens[-1].text or name not in _MATRICES | {"cases"}:
        raise Unreadable(f"the environment {name}")
    rows, _ = split(tokens[1:-1], lambda token: token.kind == "row")
    rows = [row for row in rows if row]
    if name == "cases":
        parts = [row[:-1] if row[-1].is_sign(",") else row for row in rows]
        return relations.several([relations.relation(part, side) for part in parts], "and")
    cells = [split(row, lambda token: token.is_sign("&"))[0] for row in rows]
    if not cells or sum(map(len, cells)) > MAX_ITEMS or len(set(map(len, cells))) != 1:
        raise Unreadable("a matrix with rows of different lengths, or too large")
    return Matrix(tuple(tuple(side(cell) for cell in row) for row in cells))


def _scaled_matrix(tokens: Sequence[Token]) -> Form:
    """A matrix, perhaps in brackets, perhaps with a number before it."""
    begin = next(at for at, token in enumerate(tokens) if token.kind == "begin")
    before = begin - 1 if begin and tokens[begin - 1].is_sign("(", "[") else begin
    after = tokens[before:]
    matrix = _matrix(after[1:-1] if before < begin and is_enclosed(after) else after)
    factor = tokens[: before - 1] if before and tokens[before - 1].is_sign("*") else tokens[:before]
    if not factor:
        return matrix
    minus = len(factor) == 1 and factor[0].is_sign("-")
    times = MINUS_ONE if minus else expression_of(factor)
    if not isinstance(matrix, Matrix):
        raise Unreadable("a number before what is no matrix")
    return Matrix(tuple(tuple(_times(times, cell) for cell in row) for row in matrix.rows))


def _times(factor: Expression, cell: Form) -> Form:
    if not isinstance(cell, Value):
        raise Unreadable("a number before a matrix of other things")
    return Value(Product((factor, cell.expression)), cell.unit)


def _french_interval(tokens: Sequence[Token]) -> Form | None:
    """``]0, 1[``: a bracket that turns its back is an open end."""
    if len(tokens) < 5 or not (tokens[0].is_sign("]") or tokens[-1].is_sign("[")):
        return None
    if not tokens[0].is_sign("[", "]") or not tokens[-1].is_sign("[", "]"):
        return None
    parts, _ = split(tokens[1:-1], is_comma)
    brackets = ("(" if tokens[0].text == "]" else "[") + (")" if tokens[-1].text == "[" else "]")
    ends = Items(brackets, tuple(side(part) for part in parts))
    return relations.as_reals(ends)


def _ratio(tokens: Sequence[Token]) -> Form | None:
    parts, cuts = split(tokens, lambda token: token.is_sign(":"))
    return Ratio(tuple(expression_of(part) for part in parts)) if cuts else None
