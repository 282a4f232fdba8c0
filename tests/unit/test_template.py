"""The template: instructions, worked examples, and the question itself, as text and as chat."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.data.template import Example, Template


def test_instructions_and_examples_in_plain_text():
    template = Template(
        system="add", prefix="q: ", suffix="\na:", examples=(Example(prompt="1+1", response=" 2"),)
    )
    assert template.apply("3+4") == "add\n\nq: 1+1\na: 2\n\nq: 3+4\na:"


def test_worked_examples_are_earlier_turns_of_a_chat():
    template = Template(
        system="add", prefix="q: ", suffix="\na:", examples=(Example(prompt="1+1", response=" 2"),)
    )
    turns = [
        {"role": "system", "content": "add"},
        {"role": "user", "content": "q: 1+1\na:"},
        {"role": "assistant", "content": " 2"},
        {"role": "user", "content": "q: 3+4\na:"},
    ]
    assert list(template.apply([{"role": "user", "content": "3+4"}])) == turns
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "3+4"}]
    assert [turn["content"] for turn in template.apply(own)] == ["own", "q: 1+1\na:", " 2", "q: 3+4\na:"]
    assert own[1]["content"] == "3+4", "the row is left as it was"
    assert Template(form="chat").apply("3+4") == ({"role": "user", "content": "3+4"},)
