"""Are two answers equivalent? The rules by which forms are compared, one function a pair of sorts.

The policy, said once:
* numbers are compared exactly: 0.5 is 1/2, 0.3333 is not 1/3. ``tolerance`` loosens this for real constants;
* a unit that only one side names is let pass (5 cm is 5); units that both name must agree, after
  conversion (100 cm is 1 m); a noun is a unit (13 apples are not 13 oranges);
* 50% is 1/2, and the sign may be left out (50% is 50) from 1% on; 90 degrees are pi/2, and 90 without the
  sign;
* sets and bare lists have no order and no repetitions, tuples, intervals and matrices have order;
  one thing alone is its own list;
* a name is let pass (x = 5 is 5), two names must agree; an equation equals its multiples; an interval
  equals its inequality;
* "no solution" is the empty set;
* words are equal blank for blank: "Pari s" and "P a r i s" are not "Paris".
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from trimtab.rewards.mathematics import reals
from trimtab.rewards.mathematics.equality import Equality
from trimtab.rewards.mathematics.expressions import (
    Constant,
    Expression,
    Letter,
    Number,
    Product,
    number,
)
from trimtab.rewards.mathematics.forms import (
    Equation,
    Form,
    Inequality,
    Items,
    Matrix,
    Named,
    Ratio,
    Reals,
    Value,
    Words,
)
from trimtab.rewards.mathematics.relations import as_reals, assigned, difference

_DEGREE = Product((Constant("pi"), Number(Fraction(1, 180))))
_HUNDREDTH = Number(Fraction(1, 100))

Verdict = bool | None
"""True, False, or None where the rules cannot decide."""


class Comparison:
    """Compares one answer with one gold, within one budget of work."""

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self.work = Equality()

    def same(self, answer: Form, gold: Form) -> Verdict:
        """The verdict on two forms. Raises TooLarge when the work is spent."""
        if isinstance(answer, Named) or isinstance(gold, Named):
            return self._named(answer, gold)
        if isinstance(answer, Value) and isinstance(gold, Value):
            return self._values(answer, gold)
        if isinstance(answer, Matrix) and isinstance(gold, Matrix):
            return self._matrices(answer, gold)
        if isinstance(answer, Equation) and isinstance(gold, Equation):
            found = self.work.proportional(answer.difference, gold.difference)
            return None if found is None else found != 0
        if isinstance(answer, Inequality) and isinstance(gold, Inequality):
            found = self.work.proportional(answer.difference, gold.difference)
            return None if found is None else found > 0 and answer.strict == gold.strict
        if isinstance(answer, Words) or isinstance(gold, Words):
            if not isinstance(answer, Words) or not isinstance(gold, Words):
                return False
            return answer.text == gold.text
        if isinstance(answer, Reals) or isinstance(gold, Reals):
            sets = (as_reals(answer), as_reals(gold))
            return sets[0] is not None and sets[1] is not None and reals.same(sets[0], sets[1], self.work)
        return self._collections(answer, gold)

    def _collections(self, answer: Form, gold: Form) -> Verdict:
        if isinstance(answer, Ratio) or isinstance(gold, Ratio):
            return self._ratios(answer, gold)
        if isinstance(answer, Items) and isinstance(gold, Items):
            return self._items(answer, gold)
        for one, other in ((answer, gold), (gold, answer)):
            if isinstance(one, Items) and not one.ordered and len(one.items) == 1:
                return self.same(one.items[0], other) if one is answer else self.same(other, one.items[0])
        return False

    def _values(self, answer: Value, gold: Value) -> Verdict:
        """Two quantities; the unit that one of them leaves out is let pass."""
        if answer.unit is not None and gold.unit is not None:
            if answer.unit.powers != gold.unit.powers:
                return False
            return self._numbers(_scaled(answer), _scaled(gold))
        unit = answer.unit or gold.unit
        if unit is None:
            return self._numbers(answer.expression, gold.expression)
        with_unit, bare = (answer, gold) if answer.unit is not None else (gold, answer)
        if unit.name in ("percent", "degree"):
            factor = _HUNDREDTH if unit.name == "percent" else _DEGREE
            meant = Product((with_unit.expression, factor))
            if self._in_order(meant, bare.expression, with_unit is answer):
                return True
            size = self.work.size_of(with_unit.expression)
            if unit.name == "percent" and (size is None or abs(size) < 1):
                return False
        return self._in_order(with_unit.expression, bare.expression, with_unit is answer)

    def _in_order(self, with_unit: Expression, bare: Expression, unit_in_answer: bool) -> Verdict:
        return self._numbers(with_unit, bare) if unit_in_answer else self._numbers(bare, with_unit)

    def _numbers(self, answer: Expression, gold: Expression) -> Verdict:
        verdict = self.work.equal(answer, gold)
        if verdict is None and self.work.has_value(gold):
            verdict = False  # the answer has none where the gold has one
        if verdict is not True and self.tolerance and self.work.within(answer, gold, self.tolerance):
            return True
        return verdict

    def _matrices(self, answer: Matrix, gold: Matrix) -> Verdict:
        if [len(row) for row in answer.rows] != [len(row) for row in gold.rows]:
            return False
        cells = [zip(*rows, strict=True) for rows in zip(answer.rows, gold.rows, strict=True)]
        return _all(self.same(one, other) for row in cells for one, other in row)

    def _items(self, answer: Items, gold: Items) -> Verdict:
        if answer.ordered != gold.ordered:
            tuples = assigned(answer), assigned(gold)
            return any(tuples) and self._items(tuples[0] or answer, tuples[1] or gold)
        if not answer.ordered:
            tuples = assigned(answer), assigned(gold)
            if (tuples[0] is None) != (tuples[1] is None):  # x = 1, y = 2 is 1, 2 in this order only
                one, other = tuples[0] or Items("()", answer.items), tuples[1] or Items("()", gold.items)
                return "{}" not in (answer.brackets, gold.brackets) and self._items(one, other)
            return self._unordered(answer.items, gold.items)
        if answer.brackets != gold.brackets or len(answer.items) != len(gold.items):
            return False
        return _all(self.same(one, other) for one, other in zip(answer.items, gold.items, strict=True))

    def _unordered(self, answer: Sequence[Form], gold: Sequence[Form]) -> Verdict:
        """Each has its equal on the other side. Names in a list belong to their values."""
        pairs = [[self.same(one, other) for other in gold] for one in answer]
        columns = [[row[k] for row in pairs] for k in range(len(gold))]
        return _all(_any(row) for row in [*pairs, *columns])

    def _ratios(self, answer: Form, gold: Form) -> Verdict:
        """3 : 4 is 6 : 8, and with two parts the quotient 3/4."""
        parts = [_parts(form) for form in (answer, gold)]
        if len(parts[0]) != len(parts[1]) or not parts[0] or not all(map(self.work.has_value, parts[0])):
            return False
        if any(part == number(0) for ratio in parts for part in ratio):  # 12:00 is a time
            return _all(self.work.equal(one, other) for one, other in zip(*parts, strict=True))
        first = [part[0] for part in parts]
        return _all(
            self.work.equal(Product((one, first[1])), Product((other, first[0])))
            for one, other in zip(parts[0][1:], parts[1][1:], strict=True)
        )

    def _named(self, answer: Form, gold: Form) -> Verdict:
        """Names must agree where both sides have one; y = 2x + 1 may also be an equation."""
        if isinstance(answer, Named) and isinstance(gold, Named):
            if answer.name.replace(" ", "") == gold.name.replace(" ", ""):
                return self.same(answer.form, gold.form)
            return self._as_equations(answer, gold)
        if isinstance(answer, Equation) or isinstance(gold, Equation):
            return self._as_equations(answer, gold)
        one = answer.form if isinstance(answer, Named) else answer
        other = gold.form if isinstance(gold, Named) else gold
        return self.same(assigned(answer) or one, assigned(gold) or other)

    def _as_equations(self, answer: Form, gold: Form) -> Verdict:
        sides = [_as_equation(form) for form in (answer, gold)]
        if sides[0] is None or sides[1] is None:
            return False
        return self.same(sides[0], sides[1])


def _scaled(value: Value) -> Expression:
    assert value.unit is not None
    return Product((value.expression, Number(value.unit.scale)))


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    found = list(verdicts)
    return False if False in found else None if None in found else True


def _any(verdicts: Sequence[Verdict]) -> Verdict:
    return True if True in verdicts else None if None in verdicts else False


def _parts(form: Form) -> tuple[Expression, ...]:
    if isinstance(form, Ratio):
        return form.parts
    return (form.expression, number(1)) if isinstance(form, Value) and form.unit is None else ()


def _as_equation(form: Form) -> Equation | None:
    """``y = 2x + 1`` as ``y - (2x + 1) = 0``, where the name is one letter and the value has letters."""
    if isinstance(form, Equation):
        return form
    if isinstance(form, Named) and "(" not in form.name:
        value = form.form
        if isinstance(value, Value) and value.unit is None:
            return Equation(difference(Letter(form.name), value.expression))
    return None
