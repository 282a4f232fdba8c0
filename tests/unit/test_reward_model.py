"""The reward model as a grader: scores in batches, the map to [0, 1], and checkpoints that are refused."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.classifiers import TEMPLATE, write_classifier
from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.errors import DataError, SettingError
from trimtab.rewards.build import build_grader
from trimtab.rewards.classifier import load_classifier
from trimtab.rewards.micro_batches import MicroBatches
from trimtab.rewards.model import RewardModel
from trimtab.rewards.rubric import GraderConfig, Rubric

TEXTS = ["7", "12345678", "7 apples and so on", "", "0123456789" * 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("rm") / "qwen3")


def graded(grader, texts, prompt=None):
    """Through a rubric, all at once."""
    rollouts = [rollout_of(text, index=i) for i, text in enumerate(texts)]
    return list(asyncio.run(Rubric([(grader, 1.0)]).grade(group_of(rollouts, prompt))).grades)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("qwen3", {}),
        ("llama", {"pad_token_id": 1}),  # the end token pads
        ("gpt2", {"pad_token_id": None}),
        ("llama", {"pad_token_id": -1}),
        ("gemma2", {"pad_token_id": None}),
        ("bert", {"num_labels": 3}),
    ],
    ids=["pad", "pad is the end", "no pad", "pad is no id", "no pad, other head", "encoder"],
)
def test_a_row_has_one_score_alone_and_in_any_batch(arch, changes, tmp_path):
    path = write_classifier(tmp_path / "rm", arch, **changes)
    label = "LABEL_1" if changes.get("num_labels") else None
    model = load_classifier(str(path), label=label, form="pair" if arch == "bert" else "auto")
    ends = model.tokenizer.eos_token
    rows = [model.row("3+4=", text) for text in [*TEXTS, f"7{ends}", f"7{ends}{ends}"]]
    with torch.no_grad():
        together = model.scores(rows)
        alone = torch.cat([model.scores([row]) for row in rows])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
        if arch != "bert":
            plain = [model.module(input_ids=torch.tensor([row.ids])).logits[0, 0] for row in rows]
            torch.testing.assert_close(together, torch.stack(plain), atol=1e-5, rtol=1e-5)
    assert len({f"{score:.3f}" for score in together.tolist()}) > 4, "the model tells them apart"


def test_a_group_is_one_forward_and_a_bound_is_kept(folder):
    shapes: list[tuple[int, int]] = []

    def remember(module, args, kwargs):
        shapes.append(tuple(kwargs["input_ids"].shape))

    texts = [text for text in TEXTS if text] * 2
    for options, expected in (
        ({}, [(8, 34)]),
        ({"batch": 3}, [(3, 34), (3, 22), (2, 5)]),
        ({"batch_tokens": 70}, [(2, 34), (3, 22), (3, 12)]),
    ):
        grader = RewardModel(path=str(folder), **options)
        hook = grader._served().classifier.module.register_forward_pre_hook(remember, with_kwargs=True)
        shapes.clear()
        values = [grade.value for grade in graded(grader, texts)]
        hook.remove()
        assert shapes == expected
        assert values[:4] == pytest.approx(values[4:], abs=1e-6)


def test_single_questions_share_a_forward_and_groups_never_do(folder):
    shapes: list[tuple[int, int]] = []
    grader = RewardModel(path=str(folder))
    module = grader._served().classifier.module
    groups = [
        [rollout_of(text, index=i) for i, text in enumerate(texts)] for texts in (["7", "123"], ["12345"])
    ]

    async def alone():
        return await asyncio.gather(*(grader(prompt_of(), rollout) for group in groups for rollout in group))

    async def together():
        return await asyncio.gather(*(grader.grade_group(prompt_of(), group) for group in groups))

    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    single, grouped = asyncio.run(alone()), asyncio.run(together())
    hook.remove()
    assert shapes == [(3, 9), (2, 7), (1, 9)]
    assert [g.value for g in single] == pytest.approx([g.value for group in grouped for g in group], abs=1e-6)


def test_the_score_is_cut_and_brought_to_0_and_1(folder):
    plain = RewardModel(path=str(folder))
    [score] = asyncio.run(plain.scores(prompt_of(), [rollout_of("7")]))
    assert isinstance(score, float)
    [grade] = graded(plain, ["7"])
    assert grade.value == pytest.approx(1 / (1 + math.exp(-score)))
    assert f"score {score:.5g}" in grade.detail
    for options, value in (
        ({"centre": score - 2.0, "scale": 0.5}, 1 / (1 + math.exp(-4.0))),
        ({"normalisation": "range", "range": (score - 1.0, score + 3.0)}, 0.25),
        ({"normalisation": "range", "range": (score + 1.0, score + 3.0)}, 0.0),
        ({"clip": (score + 1.0, score + 2.0)}, 1 / (1 + math.exp(-score - 1.0))),
        ({"clip": (score - 2.0, score - 1.0)}, 1 / (1 + math.exp(-score + 1.0))),
    ):
        assert graded(replace(plain, **options), ["7"])[0].value == pytest.approx(value), options
    assert RewardModel(path=str(folder)).value(1e6) == 1.0
    assert RewardModel(path=str(folder)).value(-1e6) == 0.0


def test_a_score_that_is_not_finite_is_a_fault_never_0(folder, tmp_path):
    broken = write_classifier(tmp_path / "nan")
    weights = load_file(broken / "model.safetensors")
    weights["score.weight"][:] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    [grade] = graded(RewardModel(path=str(broken)), ["7"])
    assert (grade.state.value, grade.value) == ("grader_failed", None)
    assert "gave p#0/0 the score nan" in grade.detail


def test_an_answer_longer_than_the_context_is_not_gradable_and_an_empty_one_wrong(folder):
    long, short, empty = graded(RewardModel(path=str(folder)), ["7" * 300, "7", "<think>7"])
    assert (long.state.value, long.value) == ("not_gradable", None)
    assert "304 tokens, more than the 256" in long.detail
    assert short.value
    assert empty.value == 0.0


def test_messages_go_through_the_checkpoints_own_template(tmp_path):
    path = write_classifier(tmp_path / "chat", template=TEMPLATE)
    model = load_classifier(str(path))
    messages = ({"role": "user", "content": "3+4"},)
    assert model.tokenizer.decode(model.row(messages, "7").ids) == "u:3+4;a:7;"
    assert model.tokenizer.decode(model.row("3+4=", "7").ids) == "3+4=7"
    chat = load_classifier(str(path), form="chat")
    assert model.row(messages, "7") == chat.row("3+4", "7")
    text = load_classifier(str(path), form="text")
    assert text.tokenizer.decode(text.row(messages, "7").ids) == "3+47"


def test_messages_without_a_template_stop_before_the_run(folder):
    prompt = replace(prompt_of(), messages=({"role": "user", "content": "3+4"},))
    with pytest.raises(DataError, match=r'no chat template.*form = "text" or "pair"'):
        RewardModel(path=str(folder)).self_check([prompt])
    assert RewardModel(path=str(folder), form="text").self_check([prompt]) == []


def test_several_labels_need_a_name_and_then_give_its_share(tmp_path):
    path = write_classifier(tmp_path / "three", num_labels=3, id2label={0: "bad", 1: "fair", 2: "good"})
    with pytest.raises(SettingError, match=r"has 3 labels.*'bad', 'fair', 'good'"):
        RewardModel(path=str(path)).self_check([])
    with pytest.raises(SettingError, match="did you mean 'good'"):
        RewardModel(path=str(path), label="goood").self_check([])
    grader = RewardModel(path=str(path), label="good")
    model = load_classifier(str(path), label="good")
    row = model.row("3+4=", "7")
    with torch.no_grad():
        shares = model.module(input_ids=torch.tensor([row.ids])).logits.softmax(-1)
    assert graded(grader, ["7"])[0].value == pytest.approx(float(shares[0, 2]), abs=1e-6)


def test_what_is_no_reward_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="no trained head"):
        load_classifier("embedded/sums")
    with pytest.raises(DataError, match="cannot be loaded"):
        RewardModel(path=str(tmp_path / "nothing")).self_check([])
    own = write_classifier(tmp_path / "own")
    config = json.loads((own / "config.json").read_text())
    code = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
    (own / "config.json").write_text(json.dumps({**config, "model_type": "evil", "auto_map": code}))
    (own / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(DataError, match="cannot be loaded"):
        load_classifier(str(own))
    assert not (tmp_path / "ran").exists(), "code from a checkpoint never runs"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"path": ""}, "path"),
        ({"form": "chatt"}, "form"),
        ({"reads": "some"}, "reads"),
        ({"normalisation": "range"}, "belong together"),
        ({"range": [0, 1]}, "belong together"),
        ({"clip": [1, 0]}, "clip"),
        ({"normalisation": "range", "range": [0, 1], "scale": 2.0}, "scale"),
        ({"scale": 0.0}, "scale"),
        ({"centre": float("nan")}, "centre"),
        ({"batch": 0}, "batch"),
        ({"normalisation": "z-score"}, "normalisation"),
    ],
)
def test_impossible_options_are_refused(options, word):
    with pytest.raises(SettingError, match=word):
        build_grader(GraderConfig(name="reward-model", options={"path": "x", **options}))


@pytest.mark.parametrize(
    "changes",
    [{"form": "chatt"}, {"reads": None}, {"scale": 0.0}, {"centre": "0"}, {"centre": math.nan}],
    ids=str,
)
def test_a_card_that_is_damaged_is_told_of_before_the_run(changes, tmp_path):
    card = {"form": "text", "reads": "all", "centre": 0.0, "scale": 1.0, **changes}
    (tmp_path / "reward_model.json").write_text(json.dumps(card))
    with pytest.raises(DataError, match=r"reward_model.json is damaged"):
        RewardModel(path=str(tmp_path)).self_check([])


def test_unknown_devices_name_the_model(folder):
    with pytest.raises(SettingError, match="reward model .*unknown device 'tpux'"):
        RewardModel(path=str(folder), device="tpux").self_check([])


def batches_of(work, **options):
    return MicroBatches(work, size=int, **{"rows": 8, "tokens": 100, "timeout": 5.0, **options})


def test_a_fault_reaches_everyone_in_its_batch_and_nobody_else():
    def work(questions):
        if 9 in questions:
            raise ZeroDivisionError("nine")
        return [float(q) for q in questions]

    async def ask():
        batches = batches_of(work, rows=2)
        return await asyncio.gather(*(batches.ask(q) for q in (1, 9, 2, 8)), return_exceptions=True)

    one, nine, two, eight = asyncio.run(ask())
    assert (one, two) == (1.0, 2.0)
    assert isinstance(nine, ZeroDivisionError)
    assert eight is nine


def test_a_batch_that_hangs_ends_for_the_askers_and_what_is_given_up_is_not_worked_on():
    seen: list[list[int]] = []

    def work(questions):
        seen.append(questions)
        time.sleep(0.3 if 5 in questions else 0.0)
        return [0.0] * len(questions)

    async def ask():
        batches = batches_of(work, rows=1, timeout=0.1)
        late = asyncio.create_task(batches.ask(5))
        gone = asyncio.create_task(batches.ask(3))
        await asyncio.sleep(0.05)
        gone.cancel()
        with pytest.raises(TimeoutError):
            await late
        await asyncio.sleep(0.3)
        return await batches.ask(2)

    assert asyncio.run(ask()) == 0.0
    assert seen == [[5], [2]]


def test_askers_that_come_a_moment_later_are_waited_for():
    seen: list[int] = []

    def work(questions):
        seen.append(len(questions))
        return [float(q) for q in questions]

    async def ask():
        batches = batches_of(work)

        async def nested():
            return await asyncio.gather(batches.ask(2), batches.ask(3))

        return await asyncio.gather(batches.ask(1), nested())

    assert asyncio.run(ask()) == [1.0, [2.0, 3.0]]
    assert seen == [3]


def test_it_may_be_asked_from_one_event_loop_after_another():
    batches = batches_of(lambda questions: [float(q) for q in questions])
    assert [asyncio.run(batches.ask(q)) for q in (1, 2)] == [1.0, 2.0]
