"""Reward functions of TRL, verl, OpenRLHF and verifiers run as they are, and their mistakes are told."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests import foreign_rewards
from tests.handmade import prompt_of, rollout_of
from trimtab.errors import SettingError
from trimtab.rewards.adapters import Adapted, AdapterOptions, recognise
from trimtab.types import GradeState, Prompt

MESSAGES = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "3+4="})


def chat_prompt(**meta: Any) -> Prompt:
    plain = prompt_of(**meta)
    return Prompt(
        id=plain.id,
        token_ids=plain.token_ids,
        text="3+4=",
        task="sums",
        answer="7",
        messages=MESSAGES,
        meta=meta,
    )


def asked(function: Any, texts: Sequence[str], prompt: Prompt | None = None, **options: Any) -> list[Any]:
    adapted = Adapted(function, getattr(function, "__name__", "f"), AdapterOptions(**options))
    rollouts = [rollout_of(text, index=number) for number, text in enumerate(texts)]
    return asyncio.run(adapted.grades(prompt or prompt_of(), rollouts))


def values(function: Any, texts: Sequence[str], prompt: Prompt | None = None, **options: Any) -> list[Any]:
    return [grade.value for grade in asked(function, texts, prompt, **options)]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("trl_plain", "trl"),
        ("trl_async_some", "trl"),
        ("trl_logs", "trl"),
        ("trl_object", "trl"),
        ("compute_score", "verl"),
        ("compute_batch", "verl-batch"),
        ("reward_func", "openrlhf"),
        ("correct_answer", "verifiers"),
        ("parsed_answer", "verifiers"),
        ("by_state", "verifiers"),
        ("longest", "verifiers-group"),
        ("exact_match", "verifiers-v1"),
        ("AdditionTask", "verifiers-v1"),
        ("own", "trimtab"),
    ],
)
def test_the_signature_tells_the_framework(name: str, form: str):
    assert recognise(getattr(foreign_rewards, name), name) == form


def test_any_two_arguments_are_ours_unless_they_are_words_of_another():
    assert recognise(lambda one, other: 1.0, "f") == "trimtab"
    with pytest.raises(SettingError, match=r"trimtab .* and verifiers .*adapter = \"trimtab\""):
        recognise(lambda prompt, answer: 1.0, "f")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (foreign_rewards.ambiguous, r"can be read as trl .* and verifiers-group .*say which"),
        (
            foreign_rewards.unknown,
            r"no known reward function; the forms are trimtab f\(prompt, rollout\); trl",
        ),
        (lambda completions, state: 1.0, "can be read as trl .* and verifiers "),
        (dict, "class without methods marked"),
    ],
)
def test_what_cannot_be_told_is_asked_for(function: Any, told: str):
    with pytest.raises(SettingError, match=told):
        recognise(function, "f")
    assert recognise(function, "f", "verifiers") == "verifiers"
    with pytest.raises(SettingError, match="did you mean 'verifiers'"):
        recognise(function, "f", "verifier")


def test_trl_gets_text_or_messages_as_the_rows_have_them_and_columns_as_lists():
    assert values(foreign_rewards.trl_plain, ["#### 7", "#### 8", "7"], prompt_of(solution="7")) == [
        1.0,
        0.0,
        0.0,
    ]
    assert values(foreign_rewards.trl_chat, ["<think>a", "b"], chat_prompt()) == [1.0, 0.0]
    assert values(foreign_rewards.trl_chat, ["<think>a", "b"], messages=True) == [1.0, 0.0]
    seen: dict[str, Any] = {}

    def remember(prompts: Any, completions: Any, **rest: Any) -> list[float]:
        seen.update(rest, prompts=prompts, completions=completions)
        return [0.0] * len(prompts)

    asked(remember, ["a", "b"], chat_prompt(level=3, answer="seven"))
    assert seen["prompts"] == [list(MESSAGES)] * 2
    assert seen["completions"][1] == [{"role": "assistant", "content": "b"}]
    assert seen["level"] == [3, 3]
    assert seen["answer"] == ["seven"] * 2
    assert seen["completion_ids"] == [[2, 3, 4]] * 2


def test_trl_none_is_no_grade_and_coroutines_are_awaited():
    grades = asked(foreign_rewards.trl_async_some, ["7", "skip", "8"])
    assert [grade.value for grade in grades] == [1.0, None, 0.0]
    assert grades[1].state is GradeState.NOT_GRADABLE
    assert "'trl_async_some' returned None" in grades[1].detail


def test_trl_logs_become_parts_and_details_and_the_step_is_the_policy_version():
    rollouts = [rollout_of("ab", version=5), rollout_of("cd", index=1, length=4, version=5)]
    adapted = Adapted(foreign_rewards.trl_logs, "trl_logs", AdapterOptions(range=(-1.0, 1.0)))
    short, long = asyncio.run(adapted.grades(prompt_of(), rollouts))
    assert (short.value, long.value) == (1.0, 0.0)
    assert short.parts == {"step": 5.0, "tokens": 3.0}
    assert long.detail == "read='d'"

    def asks_more(completions: Any, trainer_state: Any) -> Any:
        return [trainer_state.epoch]

    with pytest.raises(AttributeError, match=r"trainer_state\.epoch is not known to a grader"):
        asked(asks_more, ["a"])


def test_verl_gets_each_answer_and_may_return_a_number_or_a_dictionary_with_score():
    prompt = prompt_of(data_source="gsm8k", extra_info={"format_score": 0.1})
    assert values(foreign_rewards.compute_score, ["so 7", "so 8"], prompt) == [1.0, 0.1]
    (grade,) = asked(foreign_rewards.compute_score, ["so 8"], prompt_of(data_source="dictionary"))
    assert (grade.value, grade.parts) == (1.0, {"acc": 0.0})
    assert values(foreign_rewards.compute_score_kwargs, ["a"], arguments={"bonus": 0.25}) == [0.25]
    grades = asked(foreign_rewards.compute_batch, ["7", "8!"])
    assert [(grade.value, grade.parts) for grade in grades] == [
        (1.0, {"length": 1.0}),
        (0.0, {"length": 2.0}),
    ]
    (fault,) = asked(lambda solution_str: {"reward": 1.0}, ["a"])
    assert "without 'score' (keys: reward)" in str(fault)


def test_verl_takes_the_task_where_the_rows_have_no_data_source():
    seen: list[Any] = []

    def score(data_source: Any, solution_str: Any, extra_info: Any) -> float:
        seen.append((data_source, extra_info))
        return 0.0

    asked(score, ["a"])
    assert seen == [("sums", {})]


def test_openrlhf_gets_prompt_and_answer_as_one_text_and_may_return_a_tensor_or_a_dictionary():
    right, wrong = asked(foreign_rewards.reward_func, ["7", "8"], range=(-0.5, 0.5))
    assert (right.value, right.parts) == (1.0, {"scores": 1.0, "right": 1.0, "mean": 0.5})
    assert (wrong.value, wrong.parts) == (0.0, {"scores": 0.0, "right": 0.0, "mean": 0.5})
    assert values(foreign_rewards.reward_tensor, ["7", "8"]) == [1.0, 1.0]
    assert values(lambda queries: torch.tensor([[0.0], [0.5]]), ["7", "8"]) == [0.0, 0.5]
    with pytest.raises(TypeError, match="without 'rewards'"):
        asked(lambda queries: {"scores": [1.0]}, ["7"])


def test_verifiers_functions_get_what_they_name_as_messages():
    assert values(foreign_rewards.correct_answer, ["it is 7", "8"]) == [1.0, 0.0]
    assert values(foreign_rewards.parsed_answer, ["7", "8"], prompt_of(info='{"scale": 0.5}')) == [0.5, 0.0]
    assert values(foreign_rewards.by_state, ["7", "8"]) == [1.0, 0.0]
    assert values(foreign_rewards.longest, ["7", "so 7", "8"]) == [0.0, 1.0, 0.0]
    assert values(lambda completion, level: level, ["7"], prompt_of(level=1)) == [1]
    assert values(lambda completion: completion == "7", ["7"], messages=False) == [1.0]


def test_verifiers_v1_functions_and_classes_see_a_trace():
    assert values(foreign_rewards.exact_match, [" 7 ", "8"]) == [1.0, 0.0]
    right, wrong = asked(foreign_rewards.AdditionTask, ["7", "it is 8"])
    assert (right.value, right.parts) == (1.0, {"exact": 1.0, "short": 1.0})
    assert (wrong.value, wrong.parts) == (0.0, {"exact": 0.0, "short": 0.0})
    assert values(lambda trace: float(trace.num_turns == 1 and len(trace.messages) == 2), ["7"]) == [1.0]
    (fault,) = asked(lambda trace: trace.runtime_id, ["7"])
    assert "trace.runtime_id needs a running verifiers environment" in str(fault)
    (fault,) = asked(lambda trace, runtime: 1.0, ["7"])
    assert "needs the argument 'runtime'" in str(fault)


def test_case_23_one_reward_for_eight_answers_is_an_error_that_names_the_function_and_both_numbers():
    with pytest.raises(ValueError, match="'one_for_all' returned 1 reward for 8 answers"):
        asked(foreign_rewards.one_for_all, ["a"] * 8)
    with pytest.raises(TypeError, match="returned 1.0 .float. for 2 answers"):
        asked(lambda completions: 1.0, ["a", "b"])
    found = asked(lambda completions: [10**400, 1.0], ["a", "b"])
    assert "returned inf for answer 1 of 2" in str(found[0])
    assert found[1].value == 1.0
    with pytest.raises(TypeError, match="returned '11' .str. for 2 answers"):
        asked(lambda completions: "11", ["a", "b"])


def test_cases_23_and_24_every_entry_is_read_by_itself_and_a_fault_names_function_and_answer():
    grades = asked(foreign_rewards.mixed_up, list("abcdefgh"))
    assert [getattr(grade, "value", None) for grade in grades] == [
        1.0,
        None,
        None,
        None,
        1.0,
        None,
        0.5,
        None,
    ]
    assert grades[3].state is GradeState.NOT_GRADABLE
    for place, told in (
        (1, r"'mixed_up' returned NaN for answer 2 of 8 \(p#0/1\)"),
        (2, r"'mixed_up' returned '1' \(str\) for answer 3 of 8"),
        (5, r"returned 2 for answer 6 of 8 .* outside \[0, 1\]; declare .* range = \[LOW, HIGH\]"),
        (7, r"returned \[1.0\] \(list\) for answer 8 of 8"),
    ):
        with pytest.raises((TypeError, ValueError), match=told):
            raise grades[place]


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0],
        (True, False),
        [np.bool_(True), np.int64(0)],
        [np.float32(1), np.array(0)],
        np.array([1.0, 0.0]),
        torch.tensor([1, 0]),
        [torch.tensor(1.0), torch.tensor(False)],
    ],
)
def test_case_23_rewards_of_any_numeric_type_are_accepted(returned: Any):
    assert values(lambda completions: returned, ["a", "b"]) == [1.0, 0.0]


def test_a_declared_range_is_mapped_evenly_and_its_ends_bear_rounding():
    got = values(lambda completions: [-2.0, 0.0, 2.0, np.float32(2.0000002)], list("abcd"), range=(-2.0, 2.0))
    assert got == [0.0, 0.5, 1.0, 1.0]
    for low, high in ((1.0, 1.0), (1.0, 0.0), (0.0, float("inf"))):
        with pytest.raises(SettingError, match="low < high"):
            AdapterOptions(range=(low, high))


def test_exceptions_are_raised_for_a_group_and_kept_apart_for_single_answers():
    with pytest.raises(KeyError, match="no such rubric"):
        asked(foreign_rewards.raises, ["a", "b"])
    with pytest.raises(RuntimeError, match="'leaves' called exit"):
        asked(foreign_rewards.leaves, ["a"])

    def raises_on_8(completion: Any) -> float:
        return 1.0 / (8.0 - float(completion[-1]["content"]))

    one, fault = asked(raises_on_8, ["7", "8"])
    assert one.value == 1.0
    assert isinstance(fault, ZeroDivisionError)


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(TypeError, match=r"'needs_a_column' needs the argument 'difficulty'.*level"):
        asked(foreign_rewards.needs_a_column, ["a"], prompt_of(level=1))
