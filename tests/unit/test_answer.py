"""Answer match: where an answer must stand, which answers are the same, and golds that cannot be used."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from fractions import Fraction

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.answer import AnswerMatch, clean, conclusion
from trimtab.rewards.numbers import parse_number
from trimtab.types import GradeState


def state(grader, gold, response, prompt_text="q"):
    grade = asyncio.run(grader(prompt_of(answer=gold, text=prompt_text), rollout_of(response)))
    return grade.state.value


WORD = AnswerMatch(marker="Answer:")
HASH = AnswerMatch(marker="####")
TAG = AnswerMatch(marker="<answer>")
LAST = AnswerMatch(marker="last-line")


@pytest.mark.parametrize(
    ("grader", "gold", "response"),
    [
        (WORD, "13", "Answer: 13."),
        (WORD, "13", "so 6+7.\nAnswer: 13"),
        (WORD, "13", "**Answer:** 13"),
        (WORD, "13", "**Answer: 13**"),
        (WORD, "13", "**Answer**: `13`"),
        (WORD, "13", "Answer: $13$"),
        (WORD, "13", "Answer:\n\n13\nHope this helps."),
        (WORD, "13", "Answer: 12\nwait\nAnswer: 13"),
        (WORD, "13", "Final Answer: 13"),
        (WORD, "-3", "Answer: \u22123"),
        (WORD, 13, "13"),
        (WORD, 13.0, "13"),
        (WORD, "13", " 13.\n"),
        (HASH, "18", "9*2=18\n#### 18."),
        (HASH, "18", "####18"),
        (HASH, "18", "#### 18.0"),
        (HASH, "18", "#### $18"),
        (HASH, "1000", "#### 1,000"),
        (HASH, "1,000", "#### 1000"),
        (HASH, "18", "#### 5\n#### 18"),
        (AnswerMatch(marker="#"), "-11", "7-12=-5\n#-11"),
        (AnswerMatch(marker="="), "7", "3+1=4=7"),
        (TAG, "13", "<think>6+7</think><answer>13</answer>"),
        (TAG, "13", "<answer>12</answer> no, <answer>\n 13 \n</answer> done"),
        (LAST, "13", "6+7\n13\n\n"),
        (WORD, "B", "Answer: (B)"),
        (WORD, "B", "Answer: b."),
        (WORD, "(B)", "B"),
        (WORD, "no solution", "Answer: No  solution."),
        (WORD, "1/2", "Answer: 0.5"),
        (WORD, "0.5", "Answer: 2/4"),
        (WORD, "2**3", "Answer: 2**3"),
        (WORD, "caf\u00e9", "Answer: cafe\u0301"),
    ],
)
def test_right_answers_are_right(grader, gold, response):
    assert state(grader, gold, response) == "right"


@pytest.mark.parametrize(
    ("grader", "gold", "response"),
    [
        (WORD, "13", "The result is 13"),
        (WORD, "13", "13\n13"),
        (WORD, "13", "Answer: 13 or 14"),
        (WORD, "13", "Answer: 13 apples"),
        (WORD, "13", "Answer: 13\nAnswer: 14"),
        (WORD, "13", "Answer:"),
        (WORD, "13", "13 Answer:"),
        (WORD, "13", "MyAnswer: 13"),
        (WORD, "13", "this is not the answer: 13"),
        (WORD, "13", "<think>Answer: 13"),
        (WORD, "13", "<think>Answer: 13</think>"),
        (WORD, "13", ""),
        (TAG, "13", "<answer>13"),
        (TAG, "13", "<answer>13</answer> or <answer>"),
        (TAG, "13", "13</answer>"),
        (LAST, "13", "13\nor 14"),
        (LAST, "13", ""),
        (HASH, "17", "2, 3, 5, 7, 11, 13, 17"),
        (HASH, "102", "#### 10\u00b2"),
        (HASH, "50", "#### 50%"),
        (HASH, "4", "#### 2+2"),
        (HASH, "1/3", "#### 0.3333"),
        (HASH, "5", "#### 9^{9^{9^9}}"),
        (HASH, "5", "#### 1e999999999"),
        (WORD, "B", "Answer: (B) or (C)"),
        (WORD, "1331 and 1728", "Answer: 1728"),
        (WORD, "2**3", "Answer: 23"),
        (WORD, "*a*", "Answer: a"),
    ],
)
def test_wrong_answers_are_wrong_and_not_ungradable(grader, gold, response):
    assert state(grader, gold, response) == "wrong"


def test_a_prompt_that_ends_with_the_marker_has_marked_the_answer():
    assert state(WORD, "13", " 13\nQ: what is next?", "Q: 6+7\nAnswer: ") == "right"
    assert state(WORD, "13", " 14\nQ: 13", "Q: 6+7\nAnswer:") == "wrong"
    assert state(AnswerMatch(marker="="), "7", "7", "3+4=") == "right"
    assert state(TAG, "13", "13</answer>", "...<answer>") == "right"


def test_a_template_that_opens_the_thinking_leaves_only_what_follows_it():
    assert state(WORD, "13", "so Answer: 12</think>Answer: 13", "<think>\n") == "right"
    assert state(WORD, "13", "Answer: 13", "<think>\n") == "wrong"


@pytest.mark.parametrize("gold", ["", "  ", None, ["1", "2"], True, {"a": 1}])
@pytest.mark.parametrize("response", ["13", "", "####", "Answer: None"])
def test_case_31_a_gold_that_cannot_be_used_is_never_right_or_wrong(gold, response):
    assert state(WORD, gold, response) == "not_gradable"


def test_self_check_lists_exactly_the_golds_that_cannot_verify_against_themselves():
    golds = {"a": "", "b": "abc def", "c": None, "d": ["1", "2"], "e": 1e3, "f": "two\nlines", "g": 13}
    prompts = [prompt_of(name, answer=gold) for name, gold in golds.items()]
    assert [bad.prompt_id for bad in HASH.self_check(prompts)] == ["a", "c", "d", "f"]
    assert [bad.prompt_id for bad in AnswerMatch(kind="number").self_check(prompts)] == [
        "a",
        "b",
        "c",
        "d",
        "f",
    ]
    assert [bad.prompt_id for bad in TAG.self_check([prompt_of("x", answer="a</answer>b")])] == ["x"]
    assert all(bad.reason for bad in HASH.self_check(prompts))


def test_tolerance_is_a_choice():
    loose = AnswerMatch(tolerance=1e-3)
    assert state(loose, "1/3", "#### 0.3333") == "right"
    assert state(loose, "1/3", "#### 0.332") == "wrong"
    assert state(loose, "3000", "#### 3002") == "right"
    assert state(loose, "abc", "#### abd") == "wrong"


def test_case_counts_only_when_asked():
    assert state(HASH, "Paris", "#### paris") == "right"
    assert state(AnswerMatch(case_sensitive=True), "Paris", "#### paris") == "wrong"


def test_equal_answers_are_read_in_one_spelling_for_the_vote():
    def read(response, gold="13"):
        return HASH.read(prompt_of(answer=gold), rollout_of(response))

    assert {read(r) for r in ("#### 1,000", "1000.0", "#### $1000", "so\n####  1000.")} == {"1000"}
    assert read("I do not know\nat all") is None
    assert read("#### ") is None
    assert read("#### (b)", gold="B") == "B"


def test_hostile_text_is_graded_at_once():
    started = time.perf_counter()
    for text in (
        "9" * 100_000,
        "1," * 50_000,
        "####" * 50_000,
        "*" * 100_000,
        "1e400",
        "-" * 10_000,
        "<think>" * 9999,
    ):
        assert state(HASH, "5", f"#### {text}") == "wrong"
    assert time.perf_counter() - started < 2.0


@pytest.mark.parametrize(
    "options", [{"kind": "latex"}, {"marker": "  "}, {"tolerance": -1.0}, {"tolerance": 1.0}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(SettingError):
        AnswerMatch(**options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("13", 13),
        ("-3", -3),
        ("\u22123", -3),
        ("+ 3", 3),
        ("1,234,567.5", Fraction(12345675, 10)),
        ("1\u202f000", 1000),
        (".5", Fraction(1, 2)),
        ("13.", 13),
        ("1e3", 1000),
        ("2.5E-1", Fraction(1, 4)),
        ("3/4", Fraction(3, 4)),
        ("-3 / -4", Fraction(3, 4)),
        ("3\u20444", Fraction(3, 4)),
        ("$18", 18),
        ("-\\$18", -18),
        ("\uff11\uff12", 12),
    ],
)
def test_plain_numbers(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", ".", "1/0", "1 000", "12,34", "1,0000", "10\u00b2", "1\u00bd", "50%", "1e401", "0x10"),
        *("inf", "nan", "1_000", "\u0663", "1.2.3", "--3", "3/4/5", "2+2", "1 1/2", "9" * 201),
    ],
)
def test_not_plain_numbers(text):
    assert parse_number(text) is None


def test_conclusion_and_clean():
    assert conclusion("<think>a</think>b</think>c") == "c"
    assert conclusion("a <think> b") == ""
    assert conclusion("plain") == "plain"
    assert clean(" **`13`.** ") == "13"
    assert clean("a  b\tc") == "a b c"
    assert clean("etc..") == "etc.."


def test_a_million_signs_of_emphasis_cost_no_time():
    began = time.perf_counter()
    assert clean("$" * 1_000_001).startswith("$$$")
    assert clean("**`$7.$`**") == "7"
    assert time.perf_counter() - began < 5.0


def test_a_grade_says_why():
    grade = asyncio.run(HASH(prompt_of(answer="5"), rollout_of("#### 6")))
    assert (grade.state, grade.value) == (GradeState.WRONG, 0.0)
    assert grade.detail == "'6' is not '5'"
