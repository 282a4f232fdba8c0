"""Where an answer must stand: boxes, markers, bare results, denials; never a number in running text."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from trimtab.rewards.mathematics.placement import find_answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\fbox{5}", "5"),
        (r"$$\boxed{\frac{1}{2}}$$", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"\boxed{4} so \boxed{5}, done", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"Answer: 6, hence \boxed{5}", "5"),
        (r"<think>\boxed{4}</think>\boxed{5}", "5"),
        (r"It is not easy, but \boxed{5} works.", "5"),
        (r"We get \boxed{5}. This is not a surprise.", "5"),
        (r"\boxed{5}, which is not a prime.", "5"),
        (r"\boxed{5} is not among the options.", "5"),
        ("6 is wrong\n\n\\boxed{5}", "5"),
        ("My first try was wrong\nAnswer: 5", "5"),
        ("Answer: 5", "5"),
        ("answer:5", "5"),
        ("**Answer:** 5", "5"),
        ("**Answer**: 5", "5"),
        ("**Answer: 5**", "5**"),
        ("Final Answer: 5", "5"),
        ("Answer: 4\nAnswer: 5", "5"),
        ("Answer:\n\n5\nHope this helps.", "5"),
        ("Answer:\n$$\n\\frac12\n$$", "\\frac12"),
        ("Answer: \\[ 5 \\].", "5"),
        ("The answer is 5.", "5."),
        ("The final answer is: $5$", "$5$"),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "$5$"),
        ("5", "5"),
        (" 5.\n", "5."),
        ("$$\n5\n$$", "5"),
        ("\\[5\\]", "5"),
        ("x = 5", "x = 5"),
    ],
)
def test_an_answer_is_found(response, answer):
    assert find_answer(response).answer == answer


@pytest.mark.parametrize(
    "response",
    [
        *("", "  ", "<think>5", r"<think>\boxed{5}</think>", "It is\n5", "Answer:", "Answer:\n\n"),
        *(r"\boxed{5", r"\boxed{5} \boxed{", r"\boxed{}", r"\boxed{5}\boxed{}", r"\boxed 5"),
        *(r"not \boxed{5}", r"it is not equal to \boxed{5}", r"x \ne \boxed{5}", r"can't be \boxed{5}"),
        *(
            r"\boxed{5} is wrong",
            r"\boxed{5} isn't right",
            r"\boxed{5}, which is not right",
            r"$\boxed{5}$ (wrong)",
            r"\boxed{5} is not the final answer",
            r"\boxed{5} is not.",
            "\\boxed{5}\nWait, that's wrong.",
            "Answer: 5\nWait, that's wrong.",
            r"\boxed{5}. No, this is not correct.",
            r"It would be wrong to say \boxed{5}",
        ),
        *("I don't think the answer is 5", "The answer is not\n\\[\\boxed{5}\\]"),
        *("this is not the answer: 5", "wrong answer: 5", "My incorrect answer: 5"),
        *("Answer: $$ 5", "Answer: $$5$$ or 6"),
    ],
)
def test_no_answer_is_found(response):
    place = find_answer(response)
    assert place.answer is None
    assert place.reason


def test_markers_are_a_choice():
    assert find_answer("#### 5", ("####",)).answer == "5"
    assert find_answer("<answer>5</answer>", ("<answer>",)).answer == "5"
    assert find_answer("<answer>5", ("<answer>",)).answer is None
    assert find_answer("<answer>4</answer> <answer>", ("<answer>",)).answer is None
    assert find_answer(r"\boxed{5}\nmore", ("####",)).answer != "5"
    assert find_answer("The answer is 4\n#### 5", ("####", "The answer is")).answer == "5"
    assert find_answer("MyAnswer: 5\nmore", ("Answer:",)).answer is None


def test_a_response_of_ten_million_signs_is_no_problem():
    assert find_answer("x" * 10_000_000).answer is not None
    assert find_answer(r"\boxed{" * 1_000_000).answer is None
    assert find_answer("Answer: " * 1_000_000).answer is None
    assert find_answer("<think>" * 1_000_000).answer is None
    assert find_answer("$" * 1_000_000).answer is not None
