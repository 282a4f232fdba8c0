"""Relations: names for a value, equations, inequalities, chains, and what a list of them means."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from trimtab.rewards.mathematics import reals
from trimtab.rewards.mathematics.equality import Equality
from trimtab.rewards.mathematics.evaluation import Budget
from trimtab.rewards.mathematics.expressions import (
    INFINITY,
    Expression,
    Letter,
    Sum,
    is_infinite,
    letters,
    negative,
)
from trimtab.rewards.mathematics.forms import (
    Equation,
    Form,
    Inequality,
    Items,
    Named,
    Piece,
    Reals,
    Value,
    Words,
)
from trimtab.rewards.mathematics.names import name_of
from trimtab.rewards.mathematics.splitting import split
from trimtab.rewards.mathematics.tokens import Token, Unreadable

READING_WORK = 2_000.0
"""Work that reading may do, where it has to know which of two ends is the smaller."""
COARSE = 0.02
"""``5\\sqrt2 \\approx 7.07``: the rounded value must be right to this share, then it is dropped."""

Side = Callable[[Sequence[Token]], Form]

_SIGN = {"=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "approx": "~", "in": "in"}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def relation(tokens: Sequence[Token], side: Side) -> Form:
    """``a``, ``a = b``, ``a = b = c``, ``a < x <= b``, ``x != a``, ``x \\in S``. Raises Unreadable."""
    parts, cuts = split(tokens, lambda token: _sign(token) is not None)
    signs = [_SIGN[cut.text] for cut in cuts]
    if not signs:
        return side(parts[0])
    if signs == ["in"]:
        if name_of(parts[0]) is None:
            raise Unreadable("what is in the set has no name")
        found = side(parts[1])
        if not isinstance(found, Reals | Items) and not _is_letter(found):
            raise Unreadable("something in what is no set")
        return Named(str(name_of(parts[0])), found)
    while "~" in signs:
        at = signs.index("~")
        parts, signs = _without_rounded(parts, signs, at, side)
    if not signs:
        return side(parts[0])
    if all(sign == "=" for sign in signs):
        return _equal(parts, side)
    if signs == ["!="]:
        return _not_equal(_named_or_value(parts[0], side), side(parts[1]))
    return _unequal([_named_or_value(part, side) for part in parts], signs)


def _is_letter(form: Form) -> bool:
    return isinstance(form, Value) and isinstance(form.expression, Letter)


def _named_or_value(tokens: Sequence[Token], side: Side) -> Expression:
    name = name_of(tokens)
    return _expression(side(tokens)) if name is None else Letter(name)


def _sign(token: Token) -> str | None:
    return _SIGN.get(token.text) if token.kind in ("sign", "name") else None


def _without_rounded(
    parts: list[Sequence[Token]], signs: list[str], at: int, side: Side
) -> tuple[list[Sequence[Token]], list[str]]:
    """Without the rounded value behind ``~``; before a name's only value ``~`` is ``=``."""
    if at == 0 and name_of(parts[0]) is not None:
        return parts, ["=", *signs[1:]]
    work = Equality(Budget(READING_WORK))
    exact, rounded = (side(parts[k]) for k in (at, at + 1))
    if not isinstance(exact, Value) or not isinstance(rounded, Value):
        raise Unreadable("a rounded value of what is no number")
    sizes = (work.size_of(exact.expression), work.size_of(rounded.expression))
    if sizes[0] is None or sizes[1] is None or abs(sizes[0] - sizes[1]) > COARSE * abs(sizes[0]):
        raise Unreadable("a rounded value that is not near the exact one")
    return parts[: at + 1] + parts[at + 2 :], signs[:at] + signs[at + 1 :]


def _equal(parts: Sequence[Sequence[Token]], side: Side) -> Form:
    """A chain of ``=``: a name and its value, a true statement about numbers, or an equation."""
    name, values = name_of(parts[0]), parts[1:]
    if name is None and len(parts) == 2 and (turned := name_of(parts[1])) is not None:
        name, values = turned, parts[:1]
    if name is None:
        forms = [side(part) for part in parts]
        if len(forms) == 2 and (letters(_expression(forms[0])) or letters(_expression(forms[1]))):
            return Equation(difference(_expression(forms[0]), _expression(forms[1])))
        return _last_of_true_chain(forms)
    return Named(name, _last_of_true_chain([side(part) for part in values]))


def _last_of_true_chain(forms: Sequence[Form]) -> Form:
    """The last of several forms that are all equal. Raises Unreadable for ``2 + 2 = 5``."""
    work = Equality(Budget(READING_WORK))
    for one, other in pairwise(forms):
        if not work.equal(_expression(one), _expression(other)):
            raise Unreadable("an equation that does not hold, or is not known to")
    return forms[-1]


def _expression(form: Form) -> Expression:
    if not isinstance(form, Value):
        raise Unreadable("a relation between things that are no expressions")
    return form.expression


def difference(one: Expression, other: Expression) -> Expression:
    """``one - other``"""
    return Sum((one, negative(other)))


def _unequal(sides: list[Expression], signs: list[str]) -> Form:
    """Inequalities: a set of reals where one letter stands alone, else an Inequality."""
    if any(sign in ("!=", "=", "in") for sign in signs):
        raise Unreadable("a chain of different relations")
    pieces = [_ray(one, sign, other) for one, sign, other in zip(sides, signs, sides[1:], strict=False)]
    rays = [piece for piece in pieces if piece is not None]
    if len(rays) == len(pieces) and len({name for name, _ in rays}) == 1 and len(rays) <= 2:
        name, first = rays[0]
        return Named(name, Reals((first,)) if len(rays) == 1 else _between(first, rays[1][1]))
    found: list[Form] = []
    for one, sign, other in zip(sides, signs, sides[1:], strict=False):
        low, high = (one, other) if sign[0] == "<" else (other, one)
        found.append(Inequality(difference(low, high), strict=len(sign) == 1))
    return found[0] if len(found) == 1 else Items("", tuple(found))


def _ray(one: Expression, sign: str, other: Expression) -> tuple[str, Piece] | None:
    """``x < c`` or ``c < x`` as the letter and its half-line; None for anything else."""
    if isinstance(other, Letter) and not letters(one):
        one, sign, other = other, _TURNED[sign], one
    if not isinstance(one, Letter) or letters(other):
        return None
    strict = len(sign) == 1
    if sign[0] == "<":
        return one.name, Piece(negative(INFINITY), other, True, strict)
    return one.name, Piece(other, INFINITY, strict, True)


def _between(one: Piece, other: Piece) -> Form:
    """``a < x < b`` from its two half-lines."""
    low, high = (one, other) if other.low == negative(INFINITY) else (other, one)
    if low.high != INFINITY or high.low != negative(INFINITY):
        raise Unreadable("two bounds on the same side")
    return Reals((Piece(low.low, high.high, low.low_open, high.high_open),))


def _not_equal(one: Expression, form: Form) -> Form:
    """``x != 5``, ``x != \\pm 5``: all reals without these."""
    if not isinstance(one, Letter):
        if not isinstance(form, Value) or not isinstance(form.expression, Letter):
            raise Unreadable("an inequality that is no set of numbers")
        one, form = form.expression, Value(one)
    left_out = as_reals(form if isinstance(form, Items) else Items("{}", (form,)))
    if isinstance(form, Items) and form.brackets == "":
        left_out = as_reals(Items("{}", form.items))
    if left_out is None or any(letters(piece.low) for piece in left_out.pieces):
        raise Unreadable("an inequality that is no set of numbers")
    found = reals.without(Reals((reals.ALL,)), left_out, _work())
    if found is None:
        raise Unreadable("numbers that cannot be put in order")
    return Named(one.name, found)


def several(forms: Sequence[Form], joined: str) -> Form:
    """What several answers mean together. ``joined``: ``,`` or ``and`` or ``or``."""
    if len(forms) == 1:
        return forms[0]
    sets = [inner for form in forms if isinstance(inner := _unnamed(form), Reals)]
    if len(sets) == len(forms):
        names = {form.name for form in forms if isinstance(form, Named)}
        if len(names) > 1:
            return _list(forms)
        together = _several_sets(sets, joined)
        return Named(names.pop(), together) if names else together
    named = [form for form in forms if isinstance(form, Named)]
    if len(named) == len(forms) and len({form.name.partition("_")[0] for form in named}) == 1:
        return Named(named[0].name.partition("_")[0], _list([form.form for form in named]))
    if len(named) == 1 and isinstance(forms[0], Named) and joined != "and":  # x = 1, 2
        return Named(named[0].name, _list([named[0].form, *forms[1:]]))
    if any(isinstance(form, Words) for form in forms) and joined != "," and len(forms) > 8:
        raise Unreadable("a sentence")
    return _list(forms)


def _several_sets(sets: Sequence[Reals], joined: str) -> Form:
    """``and`` is what they have in common, where that is anything; ``or`` joins them."""
    if joined == "and" and (common := reals.intersection(sets, _work())) is not None and common.pieces:
        return common
    return (
        Reals(tuple(piece for form in sets for piece in form.pieces))
        if joined == "or"
        else Items("", tuple(sets))
    )


def _unnamed(form: Form) -> Form:
    return form.form if isinstance(form, Named) else form


def groups(forms: Sequence[Form]) -> Form:
    """``p = 5, q = 2; p = 7, q = 2``: each group of names is one tuple, anything else goes on as a list."""
    return _list([assigned(form) or form for form in forms])


def assigned(form: Form) -> Items | None:
    """``x = 1, y = 2`` as the tuple (1, 2) in the order of the names; None for anything else."""
    if not isinstance(form, Items) or form.brackets or not form.items:
        return None
    named = [item for item in form.items if isinstance(item, Named)]
    if len(named) != len(form.items) or len({item.name for item in named}) != len(named):
        return None
    return Items("()", tuple(item.form for item in sorted(named, key=lambda item: item.name)))


def _list(forms: Sequence[Form]) -> Items:
    """A bare list; a plus-minus inside it counts as its two values."""
    flat: list[Form] = []
    for form in forms:
        flat += form.items if isinstance(form, Items) and form.brackets == "" else [form]
    return Items("", tuple(flat))


def combined(forms: Sequence[Form], cuts: Sequence[str]) -> Form:
    """Unions, differences and intersections, from left to right."""
    if all(isinstance(form, Items) and form.brackets == "{}" for form in forms) and set(cuts) == {"cup"}:
        return Items("{}", tuple(item for form in forms if isinstance(form, Items) for item in form.items))
    found = as_reals(forms[0])
    for form, cut in zip(forms[1:], cuts, strict=True):
        other = as_reals(Items("{}", (form,)) if isinstance(form, Value) else form)  # {1} without backslashes
        if found is None or other is None:
            raise Unreadable("a union of what are no intervals")
        if cut == "cup":
            found = Reals(found.pieces + other.pieces)
        elif cut == "cap":
            found = reals.intersection([found, other], _work())
        else:
            found = reals.without(found, other, _work())
    if found is None:
        raise Unreadable("intervals whose ends cannot be put in order")
    return found


def as_reals(form: Form) -> Reals | None:
    """The set of reals that a form can be read as; None for others."""
    form = _unnamed(form)
    if isinstance(form, Reals):
        return form
    if not isinstance(form, Items):
        return None
    if form.brackets == "" and all(isinstance(_unnamed(item), Reals | Items) for item in form.items):
        parts = [as_reals(item) for item in form.items]
        if any(part is None for part in parts):
            return None
        return Reals(tuple(piece for part in parts if part is not None for piece in part.pieces))
    values = [item.expression for item in form.items if isinstance(item, Value) and item.unit is None]
    if len(values) != len(form.items):
        return None
    if form.brackets == "{}":
        if any(is_infinite(value) for value in values):
            return None
        return Reals(tuple(Piece(value, value, False, False) for value in values))
    if len(values) != 2 or form.brackets not in ("()", "[]", "(]", "[)"):
        return None
    piece = Piece(values[0], values[1], form.brackets[0] == "(", form.brackets[1] == ")")
    return Reals((piece,))


def _work() -> Equality:
    return Equality(Budget(READING_WORK))
