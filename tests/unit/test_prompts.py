"""Loading prompts: every row is looked at before anything starts, and one error tells all of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from tests.tiny import char_tokenizer
from trimtab.data.prompts import DataConfig, load_prompts
from trimtab.data.template import Example
from trimtab.errors import DataError, SettingError

CHAT = (
    "{% for m in messages %}<{{m.role[0]}}>{{m.content}}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def model(context=64, *, chat=False):
    tokenizer = char_tokenizer()
    if chat:
        tokenizer.chat_template = CHAT
    return SimpleNamespace(tokenizer=tokenizer, context=context)


@pytest.fixture
def write(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return write


def load(files, *, max_new_tokens=16, context=64, chat=False, **config):
    config = DataConfig(files=(files,) if isinstance(files, str) else files, **{"held_out": 0, **config})
    return load_prompts(config, model(context, chat=chat), max_new_tokens)


def sums(count):
    return [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(count)]


def test_rows_become_prompts_with_every_other_column_kept(write):
    rows = [{"id": 5, "prompt": "3+4=", "answer": "7", "level": 2, "tests": ["a"]}]
    (prompt,) = load(write("rows.jsonl", rows)).train
    assert (prompt.id, prompt.text, prompt.answer, prompt.task) == ("5", "3+4=", "7", "rows")
    assert prompt.meta == {"level": 2, "tests": ["a"]}
    assert prompt.token_ids.tolist() == char_tokenizer()("3+4=")["input_ids"]
    assert prompt.messages is None


def test_case_33_one_report_tells_every_unusable_row(write):
    rows = sums(12)
    rows[6] = {"prompt": "7+1="}
    rows[8] = {"prompt": "9" * 60, "answer": "10"}
    rows[9] = {"prompt": [{"role": "user", "content": "1+1="}], "answer": "2"}
    rows[10] = {"prompt": "5+5=", "answer": " "}
    rows[11] = '{"prompt": "torn'
    with pytest.raises(DataError) as told:
        load(write("rows.jsonl", rows))
    lines = {line.split(": ")[0].strip(): line for line in str(told.value).splitlines()[1:]}
    assert str(told.value).startswith("5 rows cannot be used, and nothing was started:")
    assert "not JSON" in lines["rows.jsonl row 12"]
    assert "no answer" in lines["rows.jsonl row 7"]
    assert 'data.map = {answer = "COLUMN"} or drop such rows' in lines["rows.jsonl row 7"]
    assert "empty answer" in lines["rows.jsonl row 11"]
    assert "prompt is messages, but 8 other prompts are text" in lines["rows.jsonl row 10"]
    assert "longer than 48 tokens" in lines["rows.jsonl row 9"]
    assert "the longest has 60" in lines["rows.jsonl row 9"]


def test_unusable_rows_can_be_dropped_and_are_listed(write):
    rows = sums(4)
    rows[1] = {"prompt": "7+1="}
    rows[2] = {"prompt": "9" * 60, "answer": "10"}
    loaded = load(write("rows.jsonl", rows), on_bad="drop", on_long="drop")
    assert [prompt.answer for prompt in loaded.train] == ["1", "4"]
    assert loaded.report.dropped == 2
    assert [w.split(":")[0] for w in loaded.report.warnings] == [
        "dropped rows.jsonl row 2",
        "dropped rows.jsonl row 3",
    ]
    with pytest.raises(DataError, match="row 2"):
        load(write("rows.jsonl", rows), on_long="drop")


def test_many_bad_rows_are_counted_and_not_all_printed(write):
    rows = [{"prompt": f"{i}+1=", "answer": "" if i < 90 else "1"} for i in range(100)]
    with pytest.raises(DataError, match=r"rows 1, 2, .*, 20 and 70 more: empty answer"):
        load(write("rows.jsonl", rows))


def test_a_missing_column_and_a_mapped_one(write):
    path = write("rows.jsonl", [{"text": "3+4=", "gold": {"value": "7"}}])
    with pytest.raises(DataError, match=r'row 1: no prompt .*data.map = \{prompt = "COLUMN"\} .*text, gold'):
        load(path)
    (prompt,) = load(path, map={"prompt": "text", "answer": "gold.value"}).train
    assert (prompt.text, prompt.answer) == ("3+4=", "7")
    with pytest.raises(DataError, match="row 1: no column 'glod'"):
        load(path, map={"prompt": "text", "answer": "glod"})
    with pytest.raises(SettingError, match="'anser' is none.*'answer'"):
        load(path, map={"anser": "gold"})


def test_rows_without_any_answer_are_fine_for_graders_that_need_none(write):
    loaded = load(write("rows.jsonl", [{"prompt": "1"}, {"prompt": "2"}]))
    assert [prompt.answer for prompt in loaded.train] == [None, None]


def test_case_32_repeats_are_counted_and_evaluation_repeats_are_one_prompt(write):
    train = write("train.jsonl", sums(17) * 100)
    held_out = write("held.jsonl", [{"prompt": f"{i}-1=", "answer": str(i - 1)} for i in range(30)] * 32)
    loaded = load(train, held_out=(held_out,))
    assert (len(loaded.train), len(loaded.held_out)) == (17, 30)
    assert loaded.report.merged == (1683, 930)
    first, second = loaded.report.warnings
    assert first == "1683 of 1700 rows repeat an earlier one and were merged with it; 17 are different"
    assert second.startswith("held out: 930 of 960 rows repeat")
    kept = load(train, held_out=(held_out,), duplicates="keep")
    assert (len(kept.train), len({p.id for p in kept.train}), len(kept.held_out)) == (1700, 17, 30)


def test_the_same_prompt_with_different_answers_is_told(write):
    loaded = load(write("rows.jsonl", [*sums(2), {"prompt": "1+1=", "answer": "3"}]))
    assert len({prompt.id for prompt in loaded.train}) == 3
    assert loaded.report.warnings == ("the same prompt stands with different answers in rows 2, 3",)


def test_ids_are_stable_and_unique(write):
    rows = sums(5)
    first = [p.id for p in load(write("a.jsonl", rows)).train]
    again = [p.id for p in load(write("a.jsonl", rows[::-1]), context=90).train]
    assert sorted(first) == sorted(again)
    clash = [{"id": 1, "prompt": "1+1=", "answer": "2"}, {"id": 1, "prompt": "2+2=", "answer": "4"}]
    with pytest.raises(DataError, match=r"row 2: id '1' also names the different row 1 of a.jsonl"):
        load(write("a.jsonl", clash))


def test_the_held_out_part_is_seeded_and_never_trained_on(write):
    path = write("rows.jsonl", sums(100))
    loaded = load(path, held_out=20, seed=1)
    texts = [{p.text for p in part} for part in (loaded.train, loaded.held_out)]
    assert [len(part) for part in texts] == [80, 20]
    assert not texts[0] & texts[1]
    shuffled = load(write("other.jsonl", sums(100)[::-1]), held_out=20, seed=1)
    assert {p.text for p in shuffled.held_out} == texts[1], "whatever the order of the rows"
    assert {p.text for p in load(path, held_out=20, seed=2).held_out} != texts[1]
    assert len(load(path, held_out=None).held_out) == 10
    with pytest.raises(DataError, match="no training prompt is left, 100 are held out"):
        load(path, held_out=100)


def test_training_prompts_that_are_also_held_out_are_left_out(write):
    loaded = load(write("train.jsonl", sums(10)), held_out=(write("held.jsonl", sums(3)),))
    assert (len(loaded.train), len(loaded.held_out), loaded.report.leaked) == (7, 3, 3)
    assert loaded.report.warnings == ("3 training prompts are also held out and were left out of training",)


def test_messages_without_a_chat_template_are_reported_by_row(write):
    rows = [{"prompt": [{"role": "user", "content": "1"}], "answer": "1"}] * 1
    with pytest.raises(DataError, match=r"rows.jsonl row 1: .*no chat template"):
        load(write("rows.jsonl", rows))


@pytest.mark.parametrize(
    "prompt",
    [[], [{"role": "user"}], [{"role": "user", "content": ["image"]}], ["text"], 7, {"role": "user"}],
)
def test_what_is_neither_text_nor_messages_is_reported(write, prompt):
    with pytest.raises(DataError, match="row 1: prompt is neither text nor a list"):
        load(write("rows.jsonl", [{"prompt": prompt, "answer": "1"}]))


def test_a_built_in_task():
    config = DataConfig(task="sums", train_prompts=20, held_out=5)
    loaded = load_prompts(config, model(), 16)
    again = load_prompts(config, model(), 16)
    assert (len(loaded.train), len(loaded.held_out)) == (20, 5)
    assert [p.id for p in loaded.train] == [p.id for p in again.train]
    assert loaded.train[0].task == "sums"
    assert loaded.report.schema is None
    with pytest.raises(SettingError, match="did you mean 'sums'"):
        load_prompts(DataConfig(task="sum"), model(), 16)


def test_the_report_in_lines(write):
    loaded = load(write("rows.jsonl", sums(4)))
    lines = loaded.lines()
    assert lines[0] == "prompts: 4 for training, 0 held out, from 4 + 0 rows"
    assert lines[1] == "schema: plain (no other schema's columns are there)"
    assert lines[2] == "prompt tokens: 4 shortest, 4 median, 4 longest"
    assert lines[3].endswith("(4 tokens, answer '1'): '0+1='")


def test_prompts_that_cannot_be_graded_can_be_left_out(write):
    loaded = load(write("rows.jsonl", sums(4)), held_out=1)
    gone = {loaded.train[0].id, loaded.held_out[0].id}
    left = loaded.without(gone)
    assert (len(left.train), len(left.held_out)) == (2, 0)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "either task"),
        ({"task": "sums", "files": ("a",)}, "not both"),
        ({"task": "sums", "held_out": ("a",)}, "is a number"),
        ({"task": "sums", "held_out": -1}, "held_out must be >= 0"),
        ({"task": "sums", "train_prompts": 0}, "train_prompts must be >= 1"),
        ({"task": "sums", "on_long": "cut"}, "on_long cannot be 'cut'"),
        ({"task": "sums", "duplicates": "mergee"}, "did you mean 'merge'"),
    ],
)
def test_impossible_settings_are_refused(config, told):
    with pytest.raises(SettingError, match=told):
        DataConfig(**config)


def test_lengths_that_leave_no_room_are_refused():
    config = DataConfig(task="sums", train_prompts=5, held_out=0)
    with pytest.raises(SettingError, match="leaves no room"):
        load_prompts(config, model(64), 64)
    with pytest.raises(SettingError, match="together exceed"):
        load_prompts(DataConfig(task="sums", max_prompt_tokens=60), model(64), 16)
    with pytest.raises(DataError, match=r"longer than data.max_prompt_tokens = 3; .* raise data.max_prompt"):
        load_prompts(DataConfig(task="sums", train_prompts=5, max_prompt_tokens=3), model(64), 16)


def test_the_table_is_read_from_a_recipe():
    table = {
        "files": ["a.jsonl"],
        "map": {"answer": "gold"},
        "held_out": ["b.jsonl"],
        "template": {"form": "chat", "examples": [{"prompt": "1+1", "response": "2"}]},
        "memory": {"mastered_rest": 20},
    }
    read = TypeAdapter(DataConfig)
    config = read.validate_json(json.dumps(table), strict=True)
    assert config.held_out == ("b.jsonl",)
    assert config.template.examples == (Example(prompt="1+1", response="2"),)
    assert config.memory.mastered_rest == 20
    assert read.validate_json('{"task": "sums", "held_out": 64}', strict=True).held_out == 64
