"""The engine on a real pretrained model, where depth and vocabulary are not toys: SmolLM2-135M-Instruct."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

from tests.commands import SCRIPTS, script
from tests.contract.test_engines import sample
from tests.contract.test_local_engine import pairs
from trimtab.config import resolve
from trimtab.models import LoadedModel, load_model
from trimtab.rollout.checks import check_ratio
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.templates import render
from trimtab.types import Draw, Finish, Prompt

FOLDER = SCRIPTS.parent / "models" / "smollm2-135m-instruct"
QUESTIONS = ("Calculate 3 + 4 - 9.", "Calculate 10 - 10 - 10 + 2.")

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER.name} is not in models/ (python scripts/make_smollm2.py makes it)"
)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(str(FOLDER), device="cpu", dtype="float32")


def asked(model: LoadedModel, question: str) -> Prompt:
    """The question as the recipe's template and the model's chat template write it."""
    text, ids = render(model.tokenizer, resolve("smollm2-sums").data.template.apply(question))
    return Prompt(id=question, token_ids=ids, text=text, task="sums")


def test_what_the_folder_says_of_the_model(model: LoadedModel):
    assert (model.vocab_size, model.context) == (49152, 8192)
    assert [model.tokenizer.convert_ids_to_tokens(i) for i in model.stop_ids] == ["<|im_end|>"]
    assert model.tokenizer.tokenize("\n\n10 - 3") == ["ĊĊ", "1", "0", "Ġ-", "Ġ", "3"]
    prompt = asked(model, QUESTIONS[0])
    assert model.tokenizer.decode(prompt.token_ids) == prompt.text
    assert prompt.text.endswith("<|im_start|>user\nCalculate 3 + 4 - 9.<|im_end|>\n<|im_start|>assistant\n")
    assert "quantization_config" not in json.loads((FOLDER / "config.json").read_text())


def test_sampler_and_plain_passes_agree(model: LoadedModel):
    draws = [Draw(asked(model, question), 0) for question in QUESTIONS]
    groups = sample(LocalEngine(model), draws, n=2, sampling=Sampling(max_new_tokens=16))
    check_ratio(*pairs(model, groups, 1.0), dtype=torch.float32).require()
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        ended = rollout.token_ids[-1] in model.stop_ids
        assert ended == (rollout.finish is Finish.STOP)
        assert np.all(rollout.token_ids < model.vocab_size)


def test_the_overlong_ramp_of_the_recipe_spares_every_proper_answer(model: LoadedModel):
    run = resolve("smollm2-sums")
    work_out = script("make_reasoning_gym").work_out
    longest = 0
    for first, *rest in itertools.product((0, 9, 10), repeat=4):
        for signs in itertools.product("+-", repeat=3):
            expression = str(first) + "".join(f" {s} {n}" for s, n in zip(signs, rest, strict=True))
            total = first + sum(n if s == "+" else -n for s, n in zip(signs, rest, strict=True))
            answer = work_out(f"Calculate {expression}.", str(total))
            longest = max(longest, len(model.tokenizer.encode(answer, add_special_tokens=False)) + 1)
    assert longest <= run.sampling.max_new_tokens - run.algorithm["overlong_buffer"]
