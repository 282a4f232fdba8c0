"""Built-in cases for mathematics: formulas, intervals, sets, units; equal in value, or not quite."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.evaluation.audit.answers import REASONING, Gold, answer_cases
from trimtab.evaluation.audit.cases import Case, Form

FORMULAS = (
    Gold(
        r"\frac{1}{2}",
        ("0.5", r"\dfrac12", "1/2", r"\frac{2}{4}", "2^{-1}"),
        (r"\frac{2}{1}", "0.51", r"\frac13"),
        "3",
    ),
    Gold(
        r"\sqrt{2}",
        (r"2^{1/2}", r"\frac{2}{\sqrt2}", r"\sqrt 2"),
        (r"\sqrt{3}", "1.41", "1.4142", "2", r"\sqrt[3]{2}"),
        "5",
    ),
    Gold(
        r"2\sqrt{3}",
        (r"\sqrt{12}", r"\frac{6}{\sqrt3}", r"2 \cdot \sqrt{3}"),
        (r"3\sqrt{2}", r"\sqrt{3}", "2", "3.46"),
        "1",
    ),
    Gold(
        r"\frac{\pi}{2}",
        (r"0.5\pi", r"\pi/2", r"\dfrac{\pi}{2}"),
        (r"\frac{2}{\pi}", "1.5708", r"\pi", r"-\frac{\pi}{2}"),
        "0",
    ),
    Gold(
        "1-\\frac{1}{e}",
        ("1-1/e", "1-e^{-1}", r"\frac{e-1}{e}"),
        ("1+\\frac{1}{e}", r"\frac{1}{e}", "0.632"),
        "1",
    ),
    Gold("x^2+2x+1", ("(x+1)^2", "1+2x+x^2", "x(x+2)+1"), ("x^2+2x-1", "(x-1)^2", "x^2+1", "2x^2+2x+1"), "x"),
    Gold(r"\frac{1}{x+1}", (r"(x+1)^{-1}", "1/(1+x)"), ("1/x+1", r"\frac{1}{x-1}", "x+1"), "0"),
    Gold("2^{98}", ("4^{49}", r"2 \cdot 2^{97}"), ("2^{99}", "2^{-98}", "98^2"), "2"),
    Gold(r"\frac{1}{2^{98}}", ("2^{-98}",), (r"\frac{1}{2^{99}}", "0", "2^{98}"), "1"),
    Gold(
        "(1,2)",
        ("(1, 2)", r"\left(1,2\right)", r"(\frac{2}{2},2)"),
        ("(2,1)", "[1,2]", "(1,2,3)", "1"),
        "(0,0)",
    ),
    Gold("[0,1]", (r"0 \le x \le 1", r"\left[0,1\right]"), ("(0,1)", "[0,1)", "[0,2]", "[1,0]"), "[5,6]"),
    Gold(r"\{1,2,3\}", (r"\{3,2,1\}", "1, 2, 3"), (r"\{1,2\}", "(1,2,3)", r"\{1,2,3,4\}", "6"), r"\{9\}"),
    Gold(r"(-\infty,3)", ("x<3", r"(-\infty, 3)"), (r"(-\infty,3]", r"(3,\infty)", "x>3"), "3"),
    Gold("1331 and 1728", ("1331, 1728", "1728 and 1331"), ("1728", "1331", "1331 and 1729"), "7"),
    Gold(r"5\text{ cm}", ("5 cm", "5", r"50\text{ mm}"), (r"5\text{ m}", "6 cm", r"5\text{ cm}^2"), "9 kg"),
    Gold(r"25\%", ("25\\%", "0.25", r"\frac14"), ("2.5\\%", "0.025", "75\\%"), "1"),
    Gold("x=3", ("3", "x = 3", "x=3.0"), ("y=3", "x=-3", "x>3"), "x=0"),
    Gold(r"\text{no solution}", ("no solution", r"\emptyset"), ("0", "one solution", r"\{0\}"), "1"),
    Gold(
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        (r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
        (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}", "1,2,3,4"),
        "0",
    ),
    Gold(r"3+2i", ("2i+3", "3+2 i"), ("3-2i", "2+3i", "5i", "5"), "i"),
    Gold(r"\pm 3", ("3, -3", r"\{-3,3\}", "-3 or 3"), ("3", "-3", r"\pm 4"), "0"),
    Gold(r"\log_2 8", ("3", r"\log_2(8)"), ("8", r"\log_8 2", "2"), "1"),
)

HOSTILE = (
    "9^{9^{9^9}}",
    "10^{10^{10}}",
    r"\frac{1}{0}",
    "(10^9)!",
    "1e999999999",
    r"\sum_{k=1}^{10^9} k",
    r"\binom{10^9}{5\cdot 10^8}",
    r"2^{2^{2^{2^{2^2}}}}",
    "x" * 3_000,
    r"\frac{" * 500 + "1" + "}{2}" * 500,
    r"\int_0^1 e^{-x^{x}} dx",
    "{" * 3_000,
)


def formula_cases(form: Form) -> list[Case]:
    """The cases for short answers, and those for formulas."""
    cases = answer_cases(form)
    for gold in FORMULAS:

        def case(kind: str, right: bool, response: str, answer: str = gold.answer) -> Case:
            return Case(kind=kind, right=right, answer=answer, response=REASONING + response)

        cases.append(case("plain", True, form.put(gold.answer)))
        cases += [case("spelling", True, form.put(same)) for same in gold.same]
        cases += [case("near miss", False, form.put(near)) for near in (*gold.near, gold.other)]
        cases.append(case("hedged", False, form.put(rf"{gold.answer}\text{{ or }}{gold.other}")))
        cases.append(case("negated", False, form.put(rf"\text{{not }}{gold.answer}")))
        cases.append(case("negated", False, f"The answer is not {form.put(gold.answer)}."))
        cases.append(case("only thought", False, f"<think>{form.put(gold.answer)}</think>Done."))
    cases += [Case(kind="huge", right=False, answer="5", response=form.put(text)) for text in HOSTILE]
    return list(dict.fromkeys(cases))
