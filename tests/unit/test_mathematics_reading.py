"""Normal spelling, tokens, forms and verdicts: what is read, what is not, and what stays apart."""
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF001  (Unicode signs are meant)

from __future__ import annotations

from fractions import Fraction

import pytest

from trimtab.rewards.mathematics.equality import Equality
from trimtab.rewards.mathematics.evaluation import Budget, Evaluator, TooLarge, Undefined
from trimtab.rewards.mathematics.expressions import Call, Constant, Letter, Number, number
from trimtab.rewards.mathematics.forms import Equation, Items, Matrix, Named, Ratio, Reals, Value, Words
from trimtab.rewards.mathematics.judging import judge, unboxed
from trimtab.rewards.mathematics.normal import normal
from trimtab.rewards.mathematics.reading import read
from trimtab.rewards.mathematics.tokens import Unreadable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", Fraction(2469, 2)),
        (r"1{,}234", Fraction(1234)),
        (r"1,\!234", Fraction(1234)),
        ("1 000 000", Fraction(10**6)),
        (r"\dfrac{3}{4}", Fraction(3, 4)),
        (r"\frac34", Fraction(3, 4)),
        ("2 1/2", Fraction(5, 2)),
        (r"-2\frac{1}{2}", Fraction(-5, 2)),
        (r"2\cdot\frac{1}{2}", Fraction(1)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("1.5e3", Fraction(1500)),
        (r"1.5 \times 10^{-3}", Fraction(3, 2000)),
        ("2^10", Fraction(1024)),
        ("-2^2", Fraction(-4)),
        ("2^3^2", Fraction(512)),
        ("1/2/3", Fraction(1, 6)),
        ("3!", Fraction(6)),
        (r"\binom{5}{2}", Fraction(10)),
        (r"\sqrt{16}", Fraction(4)),
        (r"\sqrt[3]{-8}", Fraction(-2)),
        (r"8^{1/3}", Fraction(2)),
        (r"\lfloor -1.5 \rfloor", Fraction(-2)),
        ("|-3|", Fraction(3)),
        ("101_2", Fraction(5)),
        (r"\log_2 8", None),
        ("½", Fraction(1, 2)),
        ("1¾", Fraction(7, 4)),
        ("10²", Fraction(100)),
        ("−3", Fraction(-3)),
        ("１２", Fraction(12)),
        ("2**3", Fraction(8)),
    ],
)
def test_numbers_are_read_exactly(text, value):
    form = read(text)
    assert isinstance(form, Value)
    found = Evaluator(200, Budget()).value(form.expression, {})
    assert found == value if value is not None else abs(found - 3) < 1e-50


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("x", Value),
        ("5 cm", Value),
        (r"\text{blue}", Words),
        ("(1,2)", Items),
        (r"\{1,2\}", Items),
        ("1 or 2", Items),
        (r"\pm 2", Items),
        ("x=5", Named),
        ("f(x)=2x", Named),
        ("Area = 12", Named),
        ("x+y=1", Equation),
        ("(0,1]", Reals),
        ("x>3", Named),
        (r"\mathbb{R}\setminus\{0\}", Reals),
        ("3:4", Ratio),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", Matrix),
        (r"\frac12\begin{bmatrix}1\\2\end{bmatrix}", Matrix),
        (r"\begin{cases} x=1 \\ y=2 \end{cases}", Items),
    ],
)
def test_sorts_of_forms(text, sort):
    assert isinstance(read(text), sort)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "5 +", "5 5", "12 345 6", "(5", "5)", "5^", "^5", "5_", "1,,2", "(1,)", "4..2", "42?"),
        *("not 42", "about 42", "5 apples 6", "5 less", "5 hundredths", "2+2=5", "1 < x > 2", "#5", "x2"),
        *(r"\frac{1}{}", r"\frac{1}", r"\sqrt", r"\foo{5}", r"\int x", r"5 \to 6", r"\ldots", "1, 2, ..."),
        *(r"\begin{pmatrix}1&2\\3\end{pmatrix}", r"\vec{5 or 6}", "1.5_2", "7_6"),
    ],
)
def test_what_has_no_reading(text):
    with pytest.raises(Unreadable):
        read(text)


@pytest.mark.parametrize(
    "text", ["{" * 900, "(" * 900, r"\sqrt" * 300, "2^" * 900 + "2", "-" * 1900, "5" + "!" * 900, "|" * 1900]
)
def test_nesting_is_bounded(text):
    with pytest.raises(Unreadable):
        read(text)


def test_normal_spelling():
    assert normal(r"$\displaystyle \left( \frac{1}{2} \right)$") == r"( \frac{1}{2} )"
    assert normal("**5**.") == normal("`5`") == normal("{5}") == normal("= 5") == normal("5\\\\") == "5"
    assert normal(r"\\frac{1}{2}") == r"\frac{1}{2}"
    assert normal(r"\$5") == r"\$5"
    assert normal("$5") == r"\$5"
    assert normal("$5$") == "5"
    assert normal(r"{1, 2}") == "{1, 2}"
    assert unboxed(r"So $\boxed{5}$.") == "5"
    assert unboxed(r"\boxed{5") == r"\boxed{5"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"),
        (r"\sin 2x", r"2\sin x\cos x"),
        (r"(-1)^n", r"\cos(n\pi)"),
        (r"\frac{4A}{3+3i}", r"\frac{2A(1-i)}{3}"),
        (r"\sqrt{2GM/r}", r"\sqrt{\frac{2 G M}{r}}"),
        ("100,200,300", "100, 200, 300"),
        ("5 m", r"5 \text{ m}"),
        ("p=5,q=2;p=7,q=2", "(5,2),(7,2)"),
        (r"V_1:V_2=11:21", "11:21"),
        ("2:30 p.m.", r"\text{2:30 PM}"),
        (r"x \ne \pm 1", r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)"),
        (r"[0,1]\cup[1,2]", r"0 \le x \le 2"),
        ("x<1 or x>2", r"(2,\infty)\cup(-\infty,1)"),
        ("x>1 and x<2", "(1,2)"),
        ("12 sq. cm", r"12\text{ cm}^2"),
        (r"25\text{ km/h}", "25 kilometers per hour"),
        (r"5\sqrt2", r"5\sqrt2 \approx 7.07"),
    ],
)
def test_equal_in_both_directions(one, other):
    assert judge(one, other).verdict is True
    assert judge(other, one).verdict is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt{2}+10^{-500}", r"\sqrt{2}"),
        ("e^x", "e^x+10^{-40}"),
        (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        (r"\pi", "3." + "14159265358979323846264338327950288419716939937510"),
        ("x", r"\sqrt{x^2}"),
        ("n", r"\lfloor n \rfloor"),
        (r"\ln x", r"\log x"),
        ("12:00", "1:00"),
        ("2:30 p.m.", "2:30 a.m."),
        (r"0\le x\le 1", r"0\le y\le 1"),
        ("x=1,y=2", "x=2,y=1"),
        (r"\{1,2\}", "(1,2)"),
        ("5", r"\{5,6\}"),
        ("x>5", "5"),
        ("|x|=5", "5"),
        ("y=2x+1", "y=2x+2"),
        ("5 kg", "5 lb"),
        (r"\$5", "€5"),
        (r"\text{even}", r"\text{not even}"),
    ],
)
def test_different_in_both_directions(one, other):
    assert judge(one, other).verdict is False
    assert judge(other, one).verdict is False


def test_the_limits_of_evaluation():
    work = Evaluator(200, Budget())
    assert work.value(Call("factorial", (number(2004),)), {}).numerator.bit_length() > 19_000
    with pytest.raises(TooLarge):
        work.value(Call("factorial", (number(10**9),)), {})
    with pytest.raises(Undefined):
        work.value(Call("ln", (number(-1),)), {})
    with pytest.raises(Undefined):
        work.value(Constant("infinity"), {})
    with pytest.raises(TooLarge):
        Evaluator(200, Budget(0.5)).value(Constant("pi"), {})


def test_three_verdicts():
    pi, x = Constant("pi"), Letter("x")
    assert Equality().equal(pi, pi) is True
    assert Equality().equal(pi, Number(Fraction(22, 7))) is False
    assert Equality().equal(Call("ln", (number(-1),)), x) is None
    assert Equality().compare(pi, number(3)) == 1
    assert Equality().compare(number(3), pi) == -1
    assert Equality().compare(x, pi) is None
