"""From tokens to an expression: recursive descent, left to right, every token accounted for.

Multiplication without a sign binds as with one: ``1/2x`` is (1/2)x. ``2\\frac{1}{2}`` and ``2 1/2`` are
mixed numbers, 2.5. ``\\sin 2x`` takes the product that follows, up to a sign or the next function;
``\\sin^{-1}`` is the inverse. ``2^10`` is a power of ten, whatever LaTeX would print.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from trimtab.rewards.mathematics import expressions as tree
from trimtab.rewards.mathematics import marks
from trimtab.rewards.mathematics.expressions import Expression, Number, negative, quotient
from trimtab.rewards.mathematics.tokens import Token, Unreadable, number_of
from trimtab.rewards.mathematics.words import NEVER_A_UNIT


class Parser:
    """Reads one expression from ``tokens``, beginning at ``at``; ``at`` is then where it ended."""

    def __init__(self, tokens: Sequence[Token], at: int = 0) -> None:
        self.tokens = tokens
        self.at = at
        self.nesting = 0
        self.inside = 0
        self.in_bars = False
        self.split_at = -1

    @property
    def next(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def whole(self) -> Expression:
        """A sum, or ``a \\over b``."""
        value = self.sum()
        if self.next is not None and self.next.is_name("over"):
            self.at += 1
            return quotient(value, self.sum())
        return value

    def sum(self) -> Expression:
        """Terms joined by + - ± ∓."""
        terms = [self._term()]
        while (token := self.next) is not None and (token.is_sign("+", "-") or token.is_name("pm", "mp")):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else tree.Sum(tuple(terms))

    def _term(self) -> Expression:
        """One signed term; a second sign is read too, as in ``+ -3``."""
        token = self.next
        if token is not None and token.is_name("pm", "mp"):
            self.at += 1
            return tree.PlusMinus(1 if token.text == "pm" else -1, self._product())
        below = False
        for _ in range(2):
            if self.next is not None and self.next.is_sign("+", "-"):
                below ^= self.next.text == "-"
                self.at += 1
        return negative(self._product()) if below else self._product()

    def _product(self) -> Expression:
        start = self.at
        factors: list[Expression] = [self._power()]
        plain = self.at == start + 1 and self.tokens[start].text.isdigit()
        if plain and (part := self._proper_fraction()) is not None:
            factors = [Number(number_of(self.tokens[start]) + part)]
        while (token := self.next) is not None:
            if token.is_sign("*"):
                self.at += 1
                factors.append(self._signed_power())
            elif token.is_sign("/"):
                self.at += 1
                marks.divide(factors, self._signed_power())
            elif self._begins_factor(token):
                factors.append(self._power())
            else:
                break
        return factors[0] if len(factors) == 1 else tree.Product(tuple(factors))

    def _signed_power(self) -> Expression:
        if self.next is not None and self.next.is_sign("-"):
            self.at += 1
            return negative(self._power())
        return self._power()

    def _proper_fraction(self) -> Fraction | None:
        """The fraction of a mixed number, if it stands here: ``\\frac{1}{2}``, or `` 1/2`` after a blank."""
        start, token = self.at, self.next
        value: Expression | None = None
        if token is not None and token.is_name("frac"):
            value = self._primary()
        elif token is not None and token.spaced and marks.is_solidus(self.tokens, start):
            low = number_of(self.tokens[start + 2])
            value = Number(number_of(token) / low) if low else None
            self.at = start + 3
        raised = self.next is not None and self.next.is_sign("^")
        if isinstance(value, Number) and 0 < value.value < 1 and not raised:
            return value.value
        self.at = start
        return None

    def _begins_factor(self, token: Token) -> bool:
        if token.kind == "number":
            before = self.tokens[self.at - 1].kind  # x2 may be anything
            return self.at == self.split_at or before not in ("number", "letter")
        if token.is_sign("|"):
            return not self.in_bars
        if token.kind == "word":
            return self._is_product(token)
        return token.kind == "letter" or token.is_sign("(", "[", "{") or token.is_name(*marks.FACTORS)

    def _is_product(self, token: Token) -> bool:
        """``\\mathrm{ab}`` inside a formula is a times b: a unit cannot stand there."""
        return self.inside > 0 and token.textual and len(token.text) <= 3 and token.text not in NEVER_A_UNIT

    def _power(self) -> Expression:
        value = self._primary()
        for _ in range(marks.MAX_POSTFIX):
            token = self.next
            if token is not None and token.is_sign("!"):
                self.at += 1
                value = tree.Call("factorial", (value,))
            elif token is not None and token.is_sign("^") and not marks.degree_at(self.tokens, self.at):
                self.at += 1
                value = tree.Power(value, self._exponent())
        if self.inside:  # at the end of an answer a degree sign is its unit
            degree = marks.degree_at(self.tokens, self.at)
            self.at += len(degree)
            value = tree.Product((value, marks.DEGREE)) if degree else value
        return value

    def _exponent(self) -> Expression:
        if self.next is not None and self.next.is_sign("-", "+"):
            self.at += 1
            below = self.tokens[self.at - 1].text == "-"
            return negative(self._exponent()) if below else self._exponent()
        powers = [token.text for token in self.tokens[self.at : self.at + 2]]
        if len(powers) == 2 and len(powers[0]) > 1 and powers[0].isdigit() and powers[1] == "^":
            return self._argument()  # 2^52^n is 2^5 2^n
        value = self._primary()
        if self.next is not None and self.next.is_sign("^"):
            self.at += 1
            self._deeper()
            value = tree.Power(value, self._exponent())
            self.nesting -= 1
        return value

    def _deeper(self) -> None:
        self.nesting += 1
        if self.nesting > marks.MAX_NESTING:
            raise Unreadable(f"nested deeper than {marks.MAX_NESTING}")

    def group(self, opening: str) -> Expression:
        """What stands between ``opening`` (the next token) and its closing sign."""
        self.at += 1
        bars, self.in_bars = self.in_bars, opening == "|"
        self.inside += 1
        value = self.whole()
        self.inside -= 1
        self.in_bars = bars
        if self.next is None or not self.next.is_sign(marks.PAIRS[opening]):
            raise Unreadable(f"{opening} without {marks.PAIRS[opening]}")
        self.at += 1
        return value

    def _primary(self) -> Expression:
        self._deeper()
        value = self._value()
        self.nesting -= 1
        return value

    def _value(self) -> Expression:
        token = self.next
        if token is None:
            raise Unreadable("the end where a value was expected")
        if token.kind == "number":
            return self._number(token)
        if token.kind == "letter":
            self.at += 1
            return tree.Constant(token.text) if token.text in ("e", "i") else tree.Letter(token.text)
        if token.kind == "word" and self._is_product(token):
            self.at += 1
            return tree.Product(tuple(tree.Letter(letter) for letter in token.text))
        if token.is_sign("(", "[", "{"):
            return self.group(token.text)
        if token.is_sign("|"):
            return tree.Call("abs", (self.group("|"),))
        if token.kind == "name":
            return self._named(token.text)
        raise Unreadable(f"{token.text!r} where a value was expected")

    def _number(self, token: Token) -> Expression:
        self.at += 1
        below = self.next
        if below is None or not below.is_sign("_"):
            return Number(number_of(token))
        self.at += 1
        base = self._primary()
        if not isinstance(base, Number) or base.value.denominator != 1 or not 2 <= base.value <= 36:
            raise Unreadable("a subscript of a number that is no base")
        try:
            return tree.number(int(token.text, int(base.value)))
        except ValueError:
            raise Unreadable(f"{token.text} is no number in base {base.value}") from None

    def _named(self, name: str) -> Expression:
        self.at += 1
        if name == "pi":
            return tree.Constant("pi")
        if name == "infty":
            return tree.INFINITY
        if name in ("frac", "binom"):
            above, below = self._argument(), self._argument()
            return quotient(above, below) if name == "frac" else tree.Call("binom", (above, below))
        if name == "sqrt":
            return self._root()
        if name in ("lfloor", "lceil"):
            self.inside += 1
            value = self.sum()
            self.inside -= 1
            if self.next is None or not self.next.is_name("rfloor" if name == "lfloor" else "rceil"):
                raise Unreadable(f"\\{name} without its end")
            self.at += 1
            return tree.Call("floor" if name == "lfloor" else "ceil", (value,))
        if name in marks.FUNCTIONS:
            return self._function(name)
        raise Unreadable(f"\\{name} where a value was expected")

    def _argument(self) -> Expression:
        """An argument of \\frac and the like: a group, one letter, or one digit (``\\frac12``)."""
        token = self.next
        is_long = token is not None and token.kind == "number" and len(token.text) > 1
        return self._digit(token) if token is not None and is_long else self._primary()

    def _digit(self, token: Token) -> Expression:
        """``\\frac12``: the first digit is taken, the rest stays. With a blank the whole number is meant."""
        if not token.text.isdigit():
            raise Unreadable(f"{token.text} as an argument without braces")
        if token.spaced:
            return self._number(token)
        two = (Token("number", token.text[0]), Token("number", token.text[1:]))
        self.tokens = [*self.tokens[: self.at], *two, *self.tokens[self.at + 1 :]]
        self.split_at = self.at + 1
        return self._number(two[0])

    def _root(self) -> Expression:
        degree: Expression = tree.number(2)
        if self.next is not None and self.next.is_sign("["):
            degree = self.group("[")
        token = self.next
        # \sqrt 12 and √12 mean the whole number to everyone but LaTeX
        value = self._number(token) if token is not None and token.kind == "number" else self._argument()
        return tree.Call("sqrt", (value,)) if degree == tree.number(2) else tree.Call("root", (degree, value))

    def _function(self, name: str) -> Expression:
        base: Expression = tree.number(10) if name == "lg" else tree.UNKNOWN_BASE
        exponent: Expression | None = None
        while (token := self.next) is not None and token.is_sign("_", "^"):
            self.at += 1
            if token.text == "^":
                exponent = self._exponent()
            elif name == "log":
                base = self._base()
            else:
                raise Unreadable(f"a subscript of {name}")
        if exponent == tree.MINUS_ONE and name in marks.INVERSE:
            name, exponent = marks.INVERSE[name], None
        argument = self._function_argument()
        if name in ("log", "lg"):
            value: Expression = tree.Call("log", (base, argument))
        elif name == "cbrt":
            value = tree.Call("root", (tree.number(3), argument))
        else:
            value = tree.Call(name, (argument,))
        return value if exponent is None else tree.Power(value, exponent)

    def _base(self) -> Expression:
        """``\\log_10(5)`` has base 10, ``\\log_28`` is 3."""
        after = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
        return self._primary() if after is not None and after.is_sign("(") else self._argument()

    def _function_argument(self) -> Expression:
        """A group, or the product that follows: ``\\sin 2\\pi x``."""
        token = self.next
        if token is not None and token.is_sign("(", "[", "{"):
            return self.group(token.text)
        self.inside += 1
        factors = [self._power()]
        while (token := self.next) is not None and self._continues_argument(token):
            factors.append(self._power())
        self.inside -= 1
        return factors[0] if len(factors) == 1 else tree.Product(tuple(factors))

    def _continues_argument(self, token: Token) -> bool:
        plain = token.kind in ("number", "letter") or token.is_name("pi", "frac", "sqrt")
        return plain and self._begins_factor(token)
