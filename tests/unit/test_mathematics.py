"""The mathematics grader: the named cases, the policy, gold answers that cannot be used, its settings."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.build import build_grader
from trimtab.rewards.grader import Reading, SelfChecking
from trimtab.rewards.mathematics import MathematicsMatch
from trimtab.rewards.rubric import GraderConfig

MATHS = MathematicsMatch()


def state(gold, response, grader=MATHS, prompt_text="q"):
    grade = asyncio.run(grader(prompt_of(answer=gold, text=prompt_text), rollout_of(response)))
    return grade.state.value


def boxed(answer):
    return rf"So the answer is $\boxed{{{answer}}}$."


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        (r"1-\frac{1}{\mathrm{e}}", boxed(r"1+\frac{1}{\mathrm{e}}")),
        ("4", boxed(r"4\sqrt(2)")),
        ("1331 and 1728", boxed("1728")),
        ("5", r"\boxed{5} and then \boxed{6"),
        ("5", r"\boxed{5"),
        ("1/2^99", boxed("1/2^98")),
        (r"\frac{1}{2004!}", boxed(r"\frac{1}{2006!}")),
        ("3*x-1*y+13=0", boxed("3x + 4y + 14=0")),
        ("42", "The answer is definitely not 42"),
        ("5 feet", boxed("5 meters")),
        ("(1,2)", boxed("[1,2]")),
        ("1/3", boxed("0.3333")),
        (r"\pi/2", boxed("1.5708")),
        ("13", "I think it is 13"),
    ],
)
def test_case_28_wrong_stays_wrong(gold, response):
    assert state(gold, response) == "wrong"


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        (r"\sqrt{1/n}", boxed(r"\frac{1}{\sqrt n}")),
        ("5", r"\boxed{6} no wait \boxed{5}"),
        ("B", r"\boxed{(B)}"),
        ("no solution", r"\boxed{\text{no solution}}"),
        ("13", "Answer: 13."),
        ("13", "**Answer:** 13"),
        ("-3", "Answer: \u22123"),
        (13, "13"),
        (13.0, "13"),
        (r"\frac{1}{2}", boxed("0.5")),
        ("[0,1]", boxed(r"0 \le x \le 1")),
        ("18", r"The answer is \$18."),
        ("1e3", boxed("1000")),
        (1e3, boxed("1,000")),
        ("10^{10^{10}}", boxed("10^{10^{10}}")),
        ("10^{10^{10}}", boxed("10^{10000000000}")),
    ],
)
def test_case_29_right_is_right(gold, response):
    assert state(gold, response) == "right"


def test_case_29_a_tolerance_is_a_choice():
    loose = MathematicsMatch(tolerance=1e-3)
    assert state("1/3", boxed("0.3333"), loose) == "right"
    assert state(r"\pi/2", boxed("1.5708"), loose) == "right"
    assert state(r"(\frac{1}{3}, 2)", boxed("(0.3333, 2)"), loose) == "right"
    assert state("1/3", boxed("0.33"), loose) == "wrong"
    assert state("x/3", boxed("0.3333x"), loose) == "wrong"


@pytest.mark.parametrize(
    "gold",
    [
        *("", "  ", "abc def", None, ["1", "2"], True, {"a": 1}, float("nan"), float("inf")),
        *("1/0", "5}", r"\boxed{1} and \boxed{2}", r"\nonsense{3}", "2+2=5", "x=", "what is this"),
    ],
)
@pytest.mark.parametrize("response", [r"\boxed{13}", "", r"\boxed{abc def}", "Answer: None"])
def test_case_31_a_gold_that_cannot_be_used_is_never_right_or_wrong(gold, response):
    assert state(gold, response) == "not_gradable"


def test_case_31_self_check_lists_exactly_the_golds_that_cannot_verify_against_themselves():
    golds = {
        "a": "",
        "b": "abc def",
        "c": None,
        "d": ["1", "2"],
        "e": "1e3",
        "f": 1e3,
        "g": "1331 and 1728",
        "h": "B",
        "i": r"\text{abc def}",
        "j": "no solution",
        "k": r"\boxed{7}",
        "l": "1/0",
        "m": "Monday",
    }
    found = MATHS.self_check([prompt_of(name, answer=gold) for name, gold in golds.items()])
    assert [bad.prompt_id for bad in found] == ["a", "b", "c", "d", "l"]
    assert all(bad.reason for bad in found)
    assert r"\text{abc def}" in found[1].reason


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("5 cm", "5", "right"),
        ("5", "5 cm", "right"),
        ("5 cm", "0.05 m", "right"),
        ("5 cm", "5 m", "wrong"),
        ("13", "13 apples", "right"),
        ("13 apples", "13 oranges", "wrong"),
        ("13", "13 or more", "wrong"),
        ("13", "13 hundredths", "wrong"),
        (r"50\%", "50", "right"),
        (r"50\%", r"\frac12", "right"),
        (r"0.5\%", "0.5", "wrong"),
        ("x=5", "5", "right"),
        ("5", "x=5", "right"),
        ("x=5", "y=5", "wrong"),
        (r"\{1,2\}", "2, 1", "right"),
        ("(1,2)", "(2,1)", "wrong"),
        ("x=1, y=2", "(1,2)", "right"),
        ("x=1, y=2", "2, 1", "wrong"),
        ("TFT", "TTF", "wrong"),
        ("2 1/2", "2.5", "right"),
        (r"2\frac{1}{2}", "1", "wrong"),
        (r"90^\circ", r"\frac{\pi}{2}", "right"),
        (r"\emptyset", r"\text{no solution}", "right"),
        (r"\emptyset", r"\text{nosolution}", "right"),
        (r"\emptyset", r"\text{no so lution}", "wrong"),
        ("Paris", r"\text{paris}", "right"),
        ("Paris", "Pari s", "wrong"),
        ("Paris", "P a r i s", "wrong"),
        (r"\text{no such triangle}", r"\text{nosuch triangle}", "wrong"),
        ("2,024", "2, 24", "wrong"),
        ("2,124", "2, 124", "right"),
        (r"\infty", r"\infty+1", "wrong"),
        ("5", r"\frac{5}{0}", "wrong"),
        ("1", r"\int_0^1 1\,dx", "wrong"),
    ],
)
def test_the_policy(gold, answer, expected):
    assert state(gold, boxed(answer)) == expected


def test_what_the_prompt_ends_with_begins_the_response():
    assert state("13", "13", prompt_text="Q\nAnswer: ") == "right"
    assert state("13", "13}", prompt_text=r"Q. The answer is \boxed{") == "right"
    assert state("13", r"so \boxed{12}</think>\boxed{13}", prompt_text="<think>\n") == "right"
    assert state("13", r"\boxed{13}", prompt_text="<think>\n") == "wrong"


def test_a_grade_says_why():
    grade = asyncio.run(MATHS(prompt_of(answer="5"), rollout_of(r"\boxed{6}")))
    assert (grade.value, grade.detail) == (0.0, "'6' and '5' are not equivalent")
    grade = asyncio.run(MATHS(prompt_of(answer="5"), rollout_of("It is 5, no doubt.")))
    assert grade.detail == "'It is 5, no doubt.' cannot be read: 'is' after the number"


def test_equal_answers_have_one_spelling_for_votes():
    def read(response):
        return MATHS.read(prompt_of(), rollout_of(response))

    assert read(r"\boxed{\frac{1}{2}}") == read("Answer: 0.5") == read(r"\boxed{x = 2/4}")
    assert read(r"\boxed{(B)}") == read("Answer: B.") == "B"
    assert read(r"\boxed{5}") != read(r"\boxed{6}")
    assert read("several\nlines") is None
    assert isinstance(MATHS, Reading)
    assert isinstance(MATHS, SelfChecking)


def test_it_is_built_from_a_recipe():
    grader = build_grader(
        GraderConfig(name="mathematics", options={"markers": ["####", "<answer>"], "tolerance": 0.01})
    )
    assert grader == MathematicsMatch(markers=("####", "<answer>"), tolerance=0.01)
    assert state("18", "9*2=18\n#### 18", grader) == "right"
    assert state("18", "<answer>18</answer>", grader) == "right"
    assert state("18", "<answer>18", grader) == "wrong"
    assert state("18", r"\boxed{18}, says the box, and no marker", grader) == "wrong"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"markers": ()}, "needs markers"),
        ({"markers": (" ",)}, "needs markers"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"tolerance": 1.0}, "tolerance"),
        ({"timeout": 0.0}, "timeout"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        MathematicsMatch(**options)
