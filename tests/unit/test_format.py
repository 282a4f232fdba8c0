"""Format match: the asked form, what the template has already written, and no points for the prompt."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import time

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
    assert state(boxed, "\\boxed{\\{1}") == "right"
    for response in ("13", "\\boxed{", "\\boxed{1} no \\boxed{2", "\\boxed{ }", "boxed{1}"):
        assert state(boxed, response) == "wrong"


def test_json():
    keys = FormatMatch(json_keys=("answer",))
    assert state(keys, '{"answer": 1}') == "right"
    assert state(keys, '<think>x</think>\n```json\n{"answer": 1}\n```') == "right"
    for response in ('{"result": 1}', "[1]", '{"answer": 1} and', "", "{" * 100_000):
        assert state(keys, response) == "wrong"
    assert state(FormatMatch(json_keys=()), "{}") == "right"


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}'])
def test_what_is_no_strict_json_is_wrong(text):
    assert state(FormatMatch(json_keys=("a",)), text) == "wrong"


@pytest.mark.parametrize("begun", ["{", "```json\n", "```json\n{", "answer in JSON:\n{ "])
def test_json_that_the_template_has_begun(begun):
    whole = "{" if begun.strip().endswith("{") else ""
    rest = '{"answer": 1}'.removeprefix(whole) + ("\n```" if begun.startswith("`") else "")
    for grader in (FormatMatch(json_keys=("answer",)), FormatMatch(json_schema={"required": ["answer"]})):
        assert state(grader, rest, begun) == "right"
        assert state(grader, rest.replace("}", ""), begun) == "wrong"
    assert state(FormatMatch(json_keys=("answer",)), "", '{"answer": 1}') == "wrong", (
        "the prompt earns nothing"
    )


SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0}, "steps": {"$ref": "#/$defs/steps"}},
    "required": ["answer"],
    "additionalProperties": False,
    "$defs": {"steps": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
}


@pytest.mark.parametrize(
    ("response", "detail"),
    [
        ('{"answer": 7, "steps": ["3+4"]}', ""),
        ('<think>{}</think>```json\n{"answer": 7}\n```', ""),
        ('{"answer": 7.5}', "the JSON.answer is not of type integer"),
        ('{"answer": true}', "the JSON.answer is not of type integer"),
        ('{"answer": -1}', "the JSON.answer is too small"),
        ('{"steps": ["x"]}', "the JSON has no key 'answer'"),
        ('{"answer": 7, "steps": []}', "the JSON.steps has 0 items"),
        ('{"answer": 7, "steps": ["a", 1]}', "the JSON.steps[1] is not of type string"),
        ('{"answer": 7, "more": 1}', "the JSON.more is not allowed"),
        ("[" * 5000, "the JSON is nested too deeply"),
        ('{"answer": 7} done', "not valid JSON: Extra data: line 1 column 15 (char 14)"),
    ],
)
def test_a_json_schema(response, detail):
    grade = asyncio.run(FormatMatch(json_schema=SCHEMA)(prompt_of(), rollout_of(response)))
    assert grade.value == float(not detail)
    assert grade.detail.startswith(detail)


def test_a_schema_may_be_a_file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    assert state(FormatMatch(json_schema=str(path)), '{"answer": 7}') == "right"
    with pytest.raises(SettingError, match=r"missing\.json.*cannot be read"):
        FormatMatch(json_schema=str(tmp_path / "missing.json"))


@pytest.mark.parametrize(
    "grader",
    [
        FormatMatch(regex="(a+)+b", seconds=0.2),
        FormatMatch(json_schema={"pattern": "^(a+)+$"}, seconds=0.2),
    ],
    ids=["regex", "pattern"],
)
def test_a_catastrophic_expression_is_cut_off_and_the_next_answer_is_graded(grader):
    text = "a" * 40 + "!"
    hangs, fine = (text, "aab") if grader.regex else (f'"{text}"', '"aa"')
    began = time.monotonic()
    grade = asyncio.run(grader(prompt_of(), rollout_of(hangs)))
    assert (grade.state.value, grade.value) == ("timeout", None)
    assert "p#0/0 within 0.2 s" in grade.detail
    assert state(grader, fine) == "right"
    assert time.monotonic() - began < 20


def test_a_box_counts_after_the_thinking_only_also_where_the_template_opened_it():
    boxed = FormatMatch(boxed=True)
    assert state(boxed, "<think>\\boxed{1}</think> so it is 1") == "wrong"
    assert state(boxed, "\\boxed{1} and on", "x<think>") == "wrong"
    assert state(boxed, "so</think>\\boxed{1}", "x<think>") == "right"
    assert state(boxed, "1}", "put it here: \\boxed{") == "right"
    assert state(boxed, "1", "put it here: \\boxed{") == "wrong"


def test_a_prompt_of_blanks_costs_no_time():
    began = time.perf_counter()
    assert state(FormatMatch(tags=("think",)), "no", " " * 100_000) == "wrong"
    assert time.perf_counter() - began < 5.0


def test_regex_matches_the_whole_response_over_line_ends():
    regex = FormatMatch(regex=r"<think>.*</think>\s*\d+")
    assert state(regex, "<think>a\nb</think>\n7") == "right"
    assert state(regex, "<think>a\nb</think>\n7 apples") == "wrong"
    assert state(regex, "a</think>7", "<think>\n") == "right"
    assert state(regex, "7", "<think>\n\n</think>\n\n") == "right"
    assert state(FormatMatch(regex="<think></think>"), "", "<think></think>") == "wrong"
    assert state(regex, "7", "an example: <think> </think> 3") == "wrong"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tags": ("<think>",)},
        {"tags": ("a", "a")},
        {"regex": "("},
        {"regex": "a{99999999999}"},
        {"regex": "*"},
        {"boxed": True, "seconds": 0.0},
        {"json_schema": {"type": "strin"}},
        {"json_schema": {"requird": ["a"]}},
        {"json_schema": {"properties": {"a": {"minimum": "0"}}}},
        {"json_schema": {"items": [{"type": "string"}]}},
        {"json_schema": {"$ref": "https://example.org/schema.json"}},
        {"json_schema": {"pattern": "("}},
        {"json_schema": {"unevaluatedProperties": False}},
    ],
    ids=str,
)
def test_impossible_options_are_refused(options):
    with pytest.raises(SettingError):
        FormatMatch(**options)


def test_a_wrong_form_says_why():
    grade = asyncio.run(TAGS(prompt_of(), rollout_of("<think>a</think>13")))
    assert grade.detail == "<answer> stands 0 times instead of once"
