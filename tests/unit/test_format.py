"""Format match: the asked form, what the template has already written, and no points for the prompt."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.format import FormatMatch, prefilled

TAGS = FormatMatch(tags=("think", "answer"))


def state(grader, response, prompt_text="question"):
    return asyncio.run(grader(prompt_of(text=prompt_text), rollout_of(response))).state.value


@pytest.mark.parametrize(
    "response",
    ["<think>a</think><answer>b</answer>", " <think>a\nb</think>\n\n<answer>\n13</answer>\n"],
)
def test_tags_in_order(response):
    assert state(TAGS, response) == "right"


@pytest.mark.parametrize(
    "response",
    [
        "",
        "13",
        "<think>a</think>",
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b",
        "<think>a<answer>b</answer></think>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think></think><answer>b</answer>",
        "<think>a</think><answer> </answer>",
        "well <think>a</think><answer>b</answer>",
        "<think>a</think> so <answer>b</answer>",
        "<think>a</think><answer>b</answer> done",
        "a</think><answer>b</answer>",
    ],
)
def test_anything_else_is_wrong(response):
    assert state(TAGS, response) == "wrong"


def test_case_39_a_template_that_opens_the_thinking():
    opened = "<|user|>3+4<|assistant|>\n<think>\n"
    assert state(TAGS, "a</think><answer>b</answer>", opened) == "right"
    assert state(TAGS, "<think>a</think><answer>b</answer>", opened) == "wrong", "opened twice"
    assert state(TAGS, "a<answer>b</answer>", opened) == "wrong"


def test_a_template_that_closes_empty_thinking():
    closed = "<|assistant|><think>\n\n</think>\n\n"
    assert state(TAGS, "<answer>b</answer>", closed) == "right"
    assert state(TAGS, "b", closed) == "wrong"


def test_the_prompt_never_earns_the_point():
    whole = "<|assistant|><think></think><answer></answer>"
    assert state(TAGS, "13", whole) == "not_gradable"
    example = "Write <think>a</think><answer>b</answer>"
    assert prefilled(example, TAGS.tags) == ""
    assert state(TAGS, "13", example) == "wrong"
    assert state(FormatMatch(boxed=True), "13", "put it in \\boxed{13}") == "wrong"
    assert state(FormatMatch(regex="<think>"), "", "x<think>") == "wrong"


def test_boxed():
    boxed = FormatMatch(boxed=True)
    assert state(boxed, "so \\boxed{\\frac{1}{2}}.") == "right"
    for response in ("13", "\\boxed{", "\\boxed{1} no \\boxed{2", "\\boxed{ }", "boxed{1}"):
        assert state(boxed, response) == "wrong"


def test_json():
    keys = FormatMatch(json_keys=("answer",))
    assert state(keys, '{"answer": 1}') == "right"
    assert state(keys, '<think>x</think>\n```json\n{"answer": 1}\n```') == "right"
    for response in ('{"result": 1}', "[1]", '{"answer": 1} and', "", "{" * 100_000):
        assert state(keys, response) == "wrong"
    assert state(FormatMatch(json_keys=()), "{}") == "right"


def test_regex_matches_the_whole_response_over_line_ends():
    regex = FormatMatch(regex=r"<think>.*</think>\s*\d+")
    assert state(regex, "<think>a\nb</think>\n7") == "right"
    assert state(regex, "<think>a\nb</think>\n7 apples") == "wrong"
    assert state(regex, "a</think>7", "<think>\n") == "right"


@pytest.mark.parametrize(
    "options", [{}, {"tags": ("<think>",)}, {"tags": ("a", "a")}, {"regex": "("}, {"regex": "*"}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(SettingError):
        FormatMatch(**options)


def test_a_wrong_form_says_why():
    grade = asyncio.run(TAGS(prompt_of(), rollout_of("<think>a</think>13")))
    assert grade.detail == "<answer> stands 0 times instead of once"
