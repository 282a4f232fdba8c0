"""Demonstrations as batches: what is imitated, what is not, and rows that cannot be used."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import json

import pytest
import torch

from trimtab.data.template import Template
from trimtab.errors import DataError, SettingError
from trimtab.loop.demonstrations import Lesson, batches, endless, file_lessons, task_lessons
from trimtab.loop.fresh import CHARACTERS, TinyModel, fresh_model
from trimtab.models import LoadedModel

SHAPE = TinyModel(layers=1, width=16, heads=1, kv_heads=1, inner=16, context=40)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return fresh_model(SHAPE, seed=0)


def file_of(folder, *rows) -> str:
    path = folder / "shown.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_every_character_has_an_id_of_its_own_and_comes_back(model):
    tokenizer = model.tokenizer
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert len(set(ids)) == len(ids) == len(CHARACTERS) == 96
    assert tokenizer.decode(ids) == CHARACTERS
    assert tokenizer("é")["input_ids"] == [tokenizer.unk_token_id]


def test_a_fresh_model_depends_on_its_seed_alone(model):
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    again, other = fresh_model(SHAPE, seed=0), fresh_model(SHAPE, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    pairs = list(zip(model.module.parameters(), again.module.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two in pairs)
    assert not torch.equal(model.module.lm_head.weight, other.module.lm_head.weight)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"width": 30, "heads": 4}, {"heads": 4, "kv_heads": 3}])
def test_an_impossible_shape_is_refused(wrong):
    with pytest.raises(SettingError, match=r"must be|cannot share"):
        TinyModel(**wrong)


def test_the_end_token_is_imitated_unless_the_demonstration_never_ended(model, tmp_path):
    path = file_of(
        tmp_path, {"prompt": "1+1", "response": "2"}, {"prompt": "1+1", "response": "2, so", "ended": False}
    )
    whole, cut = file_lessons(path, Template(), model)
    assert whole.response_ids == [*model.tokenizer("2")["input_ids"], model.tokenizer.eos_token_id]
    assert cut.response_ids == model.tokenizer("2, so")["input_ids"]
    assert whole.prompt_ids == cut.prompt_ids == model.tokenizer("1+1")["input_ids"]


def test_prompts_and_messages_go_through_the_chat_template(tmp_path):
    model = fresh_model(SHAPE, seed=0)
    model.tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    path = file_of(
        tmp_path,
        {"prompt": "1+1", "response": "2"},
        {"messages": [{"role": "user", "content": "1+1"}], "response": "2"},
    )
    lessons = file_lessons(path, Template(form="chat"), model)
    assert [model.tokenizer.decode(lesson.prompt_ids) for lesson in lessons] == ["[user]1+1[assistant]"] * 2


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"prompt": "1+1", "answer": "2"}, r"row 2: a demonstration is .* columns prompt, answer"),
        ({"response": "2"}, "row 2: a demonstration is"),
        ({"prompt": "1+1", "response": "2" * 40}, "row 2 has 44 tokens, beyond the model's context of 40"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(model, tmp_path, row, told):
    with pytest.raises(DataError, match=told):
        file_lessons(file_of(tmp_path, {"prompt": "1+1", "response": "2"}, row), Template(), model)


def test_a_file_without_rows_is_refused(model, tmp_path):
    with pytest.raises(DataError, match="holds no demonstration"):
        file_lessons(file_of(tmp_path), Template(), model)


def test_an_unknown_task_is_refused_with_the_nearest_name(model):
    with pytest.raises(SettingError, match=r"no task 'sum' \(did you mean 'sums'\?\)"):
        next(task_lessons("sum", 1, 0, model))


def test_a_model_without_an_end_token_cannot_learn_to_end(tmp_path):
    model = fresh_model(SHAPE, seed=0)
    model.tokenizer.eos_token = None
    with pytest.raises(DataError, match="names no end token"):
        file_lessons(file_of(tmp_path, {"prompt": "1+1", "response": "2"}), Template(), model)


def test_batches_hold_the_responses_and_only_these_are_trained():
    batch = next(batches(iter([Lesson([5, 6], [7, 1]), Lesson([5], [8, 9, 1])]), size=2, seed=0))
    assert [p.tolist() for p in batch.prompts_P] == [[5, 6], [5]]
    assert batch.token_ids_T.tolist() == [7, 1, 8, 9, 1]
    assert batch.seq_T.tolist() == [0, 0, 1, 1, 1]
    assert batch.mask_T.all()
    assert batch.rewards_S.isnan().all()
    assert batch.rollout_logprobs_T.isnan().all()


def test_every_lesson_is_used_once_in_batches_of_like_length():
    lessons = [Lesson([0], [number] * (1 + number % 50)) for number in range(320)]
    made = list(batches(iter(lessons), size=10, seed=0))
    used = [int(batch.token_ids_T[0]) for batch in made]
    assert len(made) == 32
    assert sorted(int(i) for b in made for i in b.token_ids_T.unique()) == list(range(320))
    assert used != sorted(used), "batches come in a mixed order"
    assert max(int(b.lengths_S.max() - b.lengths_S.min()) for b in made) <= 10


def test_endless_lessons_come_in_another_order_each_time():
    lessons = [Lesson([0], [number]) for number in range(20)]
    drawn = [lesson.response_ids[0] for lesson in itertools.islice(endless(lessons, seed=0), 40)]
    assert sorted(drawn[:20]) == sorted(drawn[20:]) == list(range(20))
    assert drawn[:20] != drawn[20:]
