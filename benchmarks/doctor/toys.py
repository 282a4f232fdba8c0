"""Models and questions that the benchmark makes for itself, once: a start model with a start token and
tokens of several characters, one that has mastered its task, and files of easy and of hopeless sums.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.doctor.prompts import write_questions
from benchmarks.doctor.scene import FOLDER

from trimtab.data.tasks.sums import SUMS, Habits, demonstrate
from trimtab.data.tasks.task import split_of
from trimtab.loop.cold_start import ColdStart, Imitation, cold_start
from trimtab.loop.demonstrations import Lesson, batches
from trimtab.models import LoadedModel, as_loaded, export_model, load_model
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer

MERGED = str(FOLDER / "models" / "merged")
MASTER = str(FOLDER / "models" / "master")
TERSE = str(FOLDER / "models" / "terse")
EASY = str(FOLDER / "data" / "easy.jsonl")
HOPELESS = str(FOLDER / "data" / "hopeless.jsonl")

MERGES = (
    ("=", "-"), ("\n", "#"), ("\n#", "-"), ("s", "o"), ("so", " "), ("w", "a"), ("i", "t"), ("wa", "it"),
    (",", " "), ("wait", ", "), ("\n", "-"), ("1", "0"), ("1", "1"), ("1", "2"), ("1", "3"), ("+", "1"),
    ("+", "2"), ("+", "3"), ("+", "4"), ("-", "5"), ("-", "6"), ("-", "7"), ("\n", "so "), ("=", "1"),
)  # fmt: skip
SPELLED = 0.3
"""Share of the lessons that are spelled character by character, so that the model says the same text in
more than one way, as any model with such a tokenizer does now and then."""
START = "<start>"
NO_HABITS = Habits(
    sign_lost=0.0, carry_lost=0.0, slip=0.0, rambles=0.0, say_again=0.0, second_thoughts=0.0, checks=0.0,
    no_marker=0.0, no_end=0.0,
)  # fmt: skip

TERSE_HABITS = replace(NO_HABITS, sign_lost=0.4, carry_lost=0.3)
"""Never a spare word, and in doubt only where the demonstrator goes wrong."""


def make_toys(root: Path) -> None:
    """Make what is not there yet, below ``root``. Two minutes on a free core, once."""
    if not (root / EASY).exists():
        write_questions(root / EASY, 200, terms=(3, 5), largest=3, signs="+")
    if not (root / HOPELESS).exists():
        write_questions(root / HOPELESS, 400, terms=(7, 8), largest=99, signs="+-")
    if not (root / MASTER).exists():
        _taught(root / MASTER, NO_HABITS)
    if not (root / TERSE).exists():
        _taught(root / TERSE, TERSE_HABITS)
    if not (root / MERGED).exists():
        _merged(root / MERGED)


def _taught(folder: Path, habits: Habits) -> None:
    """The embedded model after demonstrations with these habits."""
    rng = random.Random(folder.name)
    shown = folder.parent.parent / "data" / f"{folder.name}.jsonl"
    rows = []
    while len(rows) < 8000:
        question = SUMS.ask(rng)
        if split_of(question.prompt) == "train":
            rows.append(demonstrate(question, rng, habits))
    lines = (json.dumps({"prompt": row.prompt, "response": row.response}) for row in rows)
    shown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    cold_start(
        ColdStart(
            demonstrations=str(shown), model="embedded/sums", updates=500, batch=32, learning_rate=1e-3
        ),
        folder,
    )


def _merged(folder: Path) -> None:
    """The embedded model with a start token and tokens of several characters, after a short imitation."""
    model = with_merges(load_model("embedded/sums"))
    trainer = LocalTrainer(
        model,
        temperature=1.0,
        config=TrainerConfig(learning_rate=1.5e-3, schedule="cosine", warmup_updates=20, betas=(0.9, 0.98)),
        total_updates=700,
    )
    objective = Objective(terms=((1.0, Imitation()),), aggregate=token_mean)
    lessons = _lessons(model)
    for batch in itertools.islice(batches(lessons, 32, 0), 700):
        asyncio.run(trainer.update(batch, objective))
    aside = folder.with_name(f".{folder.name}.partial")
    export_model(model.module, model.tokenizer, aside)
    aside.rename(folder)


def _lessons(model: LoadedModel) -> Iterator[Lesson]:
    rng = random.Random("merged")
    tokenizer = model.tokenizer
    characters = {text: number for text, number in tokenizer.get_vocab().items() if len(text) == 1}
    for shown in SUMS.demonstrations(700 * 32 + 1, 1):
        spelled = rng.random() < SPELLED
        whole: list[int] = tokenizer(shown.response, add_special_tokens=False)["input_ids"]
        response = [characters[c] for c in shown.response] if spelled else whole
        end = [model.stop_ids[0]] if shown.ended else []
        yield Lesson(tokenizer(shown.prompt)["input_ids"], [*response, *end])


def with_merges(start: LoadedModel) -> LoadedModel:
    """The model with rows for a start token and for ``MERGES``, each the mean of its characters' rows."""
    from tokenizers import Tokenizer, decoders, models
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = dict(sorted(start.tokenizer.get_vocab().items(), key=lambda item: item[1]))
    old = len(vocabulary)
    for left, right in MERGES:
        vocabulary.setdefault(left + right, len(vocabulary))
    vocabulary[START] = len(vocabulary)
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES), unk_token=start.tokenizer.unk_token))
    core.decoder = decoders.Fuse()
    core.post_processor = TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary[START])]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=START,
        pad_token=start.tokenizer.pad_token,
        eos_token=start.tokenizer.eos_token,
        unk_token=start.tokenizer.unk_token,
        model_max_length=start.context,
        clean_up_tokenization_spaces=False,
    )
    module: Any = start.module
    before = module.get_input_embeddings().weight.detach().clone()
    module.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    with torch.no_grad():
        rows = module.get_input_embeddings().weight
        for text, number in vocabulary.items():
            if number >= old:
                parts = [vocabulary[c] for c in text] if text != START else range(old)
                rows[number] = before[list(parts)].mean(0)
    module.config.bos_token_id = vocabulary[START]
    return as_loaded(module, tokenizer)
