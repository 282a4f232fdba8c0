"""Schemas: the row formats of other tools, told apart by their columns."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from trimtab.data.schemas import ABSENT, SCHEMAS, choose_schema
from trimtab.errors import SettingError

MESSAGES = [{"role": "user", "content": "3+4"}]
ROWS = {
    "trl": {"prompt": MESSAGES, "solution": "7", "level": 1},
    "verl": {
        "data_source": "gsm8k",
        "prompt": MESSAGES,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "7"},
        "extra_info": {"split": "train", "index": 0},
    },
    "skyrl": {
        "data_source": "gsm8k",
        "prompt": MESSAGES,
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "7"},
    },
    "gsm8k": {"question": "3+4?", "answer": "3+4=7\nso seven\n#### 7"},
    "plain": {"question": "3+4?", "answer": "7"},
}


@pytest.mark.parametrize("name", ROWS)
def test_each_format_is_recognised_and_read(name):
    chosen, why = choose_schema("auto", [ROWS[name]])
    assert chosen == name
    assert why
    content = SCHEMAS[name](ROWS[name])
    assert content.answer == "7"
    assert content.prompt in (MESSAGES, "3+4?")
    assert content.task == (ROWS[name].get("data_source") or ABSENT)


def test_a_named_schema_is_taken_and_an_unknown_one_refused():
    assert choose_schema("plain", [ROWS["gsm8k"]])[0] == "plain"
    with pytest.raises(SettingError, match="did you mean 'verl'"):
        choose_schema("verlx", [])


def test_what_is_not_there_is_absent_and_not_none():
    for schema in SCHEMAS.values():
        content = schema({})
        assert content.prompt is ABSENT
        assert content.answer is ABSENT
    assert SCHEMAS["gsm8k"]({"question": "q", "answer": "seven"}).answer is ABSENT
    assert SCHEMAS["verl"]({"prompt": "q", "reward_model": {"style": "rule"}}).answer is ABSENT
    assert SCHEMAS["plain"]({"prompt": "q", "answer": 0}).answer == 0


def test_the_answer_may_be_called_ground_truth_and_gsm8k_s_question_prompt():
    chosen, why = choose_schema("auto", [{"prompt": "q", "ground_truth": "7"}])
    assert (chosen, "'ground_truth'" in why) == ("trl", True)
    assert SCHEMAS["trl"]({"prompt": "q", "ground_truth": "7"}).answer == "7"
    assert SCHEMAS["plain"]({"question": "q", "ground_truth": "7"}).answer == "7"
    row = {"prompt": "3+4?", "answer": "3+4=7\n#### 7"}
    assert choose_schema("auto", [row])[0] == "gsm8k"
    assert SCHEMAS["gsm8k"](row).answer == "7"
    assert choose_schema("auto", [{"prompt": "q", "answer": ["####"]}])[0] == "plain"


def test_text_prompts_with_a_solution_are_trl_and_with_an_answer_plain():
    assert choose_schema("auto", [{"prompt": "q", "solution": "7"}])[0] == "trl"
    assert choose_schema("auto", [{"prompt": "q", "answer": "7"}])[0] == "plain"
