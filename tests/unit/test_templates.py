"""Prompts as token ids: one start token where the model wants one, never two, never none."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from tests.tiny import BOS, char_tokenizer
from trimtab.errors import DataError
from trimtab.templates import render

PLAIN = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
STRICT = "{{ raise_exception('roles must alternate') }}"
MESSAGES = [{"role": "user", "content": "1+1?"}]


def with_template(template: str | None, *, bos: bool):
    tokenizer = char_tokenizer(bos=bos)
    tokenizer.chat_template = template
    return tokenizer


def test_text_without_a_start_token():
    tokenizer = char_tokenizer()
    text, ids = render(tokenizer, "1+1=")
    assert text == "1+1="
    assert ids.dtype == np.int64
    assert ids.tolist() == tokenizer("1+1=")["input_ids"]


@pytest.mark.parametrize("text", ["1+1=", BOS + "1+1="], ids=["without", "with"])
def test_text_gets_exactly_one_start_token(text):
    tokenizer = char_tokenizer(bos=True)
    ids = render(tokenizer, text).token_ids.tolist()
    assert ids == [tokenizer.bos_token_id, *tokenizer("1+1=", add_special_tokens=False)["input_ids"]]


@pytest.mark.parametrize("template", [PLAIN, "{{ bos_token }}" + PLAIN], ids=["silent", "adds one"])
def test_template_gets_exactly_one_start_token(template):
    tokenizer = with_template(template, bos=True)
    text, ids = render(tokenizer, MESSAGES)
    assert ids[0] == tokenizer.bos_token_id
    assert (ids == tokenizer.bos_token_id).sum() == 1
    assert text.removeprefix(BOS) == "<user>1+1?\n<assistant>"
    assert tokenizer.decode(ids[1:].tolist()) == "<user>1+1?\n<assistant>"


def test_template_of_a_model_without_start_token():
    tokenizer = with_template(PLAIN, bos=False)
    text, ids = render(tokenizer, tuple(MESSAGES))
    assert tokenizer.decode(ids.tolist()) == text == "<user>1+1?\n<assistant>"


def test_a_start_token_the_tokenizer_does_not_add_is_not_added():
    """Qwen's way: there is a start token by name, and no text begins with it."""
    tokenizer = char_tokenizer()
    tokenizer.bos_token = "<eos>"
    assert render(tokenizer, "1+1=").token_ids.tolist() == tokenizer("1+1=")["input_ids"]


@pytest.mark.parametrize(
    ("template", "content", "words"),
    [
        (None, MESSAGES, "no chat template"),
        (STRICT, MESSAGES, "refuses the messages .*roles must alternate"),
        (None, "", "no token at all"),
    ],
)
def test_what_cannot_be_rendered(template, content, words):
    with pytest.raises(DataError, match=words):
        render(with_template(template, bos=False), content)
