"""Demonstrations as token ids, drawn without end and cut into the batches of a cold start."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trimtab.data.report import Problems
from trimtab.data.sources import read_files
from trimtab.data.tasks import TASKS
from trimtab.data.template import Message, Template
from trimtab.errors import DataError, SettingError, nearest
from trimtab.models import LoadedModel
from trimtab.templates import render
from trimtab.types import Batch

POOL = 16
"""Batches that are drawn together and cut by length: little padding, and still a mixed order."""


class Lesson(NamedTuple):
    """What to read and what to imitate; the end token is part of ``response_ids`` where there is one."""

    prompt_ids: list[int]
    response_ids: list[int]


def task_lessons(name: str, count: int, seed: int, model: LoadedModel) -> Iterator[Lesson]:
    """``count`` demonstrations of a built-in task, each used once.

    Raises SettingError for an unknown task, DataError for a model that they do not fit.
    """
    if name not in TASKS:
        raise SettingError(f"there is no task {name!r}{nearest(name, TASKS)}")
    for number, shown in enumerate(TASKS[name].demonstrations(count, seed), start=1):
        where = f"demonstration {number} of task {name!r}"
        yield _lesson(shown.prompt, shown.response, model, where, ended=shown.ended)


def file_lessons(path: str, template: Template, model: LoadedModel) -> list[Lesson]:
    """Every row ``{"prompt" or "messages", "response"}`` of a file; the prompt goes through ``template``.

    A row with ``"ended": false`` is imitated without an end token. Raises DataError with the row number.
    """
    problems = Problems()
    rows = read_files([path], problems)
    Problems.raise_together(problems)
    lessons: list[Lesson] = []
    for origin, number, row in rows:
        where = f"{origin}, row {number}"
        prompt, response = row.get("messages", row.get("prompt")), row.get("response")
        if not isinstance(prompt, str | list) or not prompt or not isinstance(response, str):
            raise DataError(
                f'{where}: a demonstration is {{"prompt": text or "messages": list, "response": text}}; '
                f"this row has the columns {', '.join(row) or 'none'}"
            )
        ended = row.get("ended") is not False
        lessons.append(_lesson(template.apply(prompt), response, model, where, ended=ended))
    if not lessons:
        raise DataError(f"{path} holds no demonstration")
    return lessons


def endless(lessons: Sequence[Lesson], seed: int) -> Iterator[Lesson]:
    """The lessons again and again, each time in another seeded order."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(lessons, len(lessons))


def batches(lessons: Iterator[Lesson], size: int, seed: int) -> Iterator[Batch]:
    """Batches of ``size`` lessons of like length, in a seeded order; a smaller rest is left out."""
    rng = random.Random(seed)
    while pool := list(itertools.islice(lessons, size * POOL)):
        pool.sort(key=lambda lesson: len(lesson.prompt_ids) + len(lesson.response_ids))
        starts = list(range(0, len(pool) - size + 1, size))
        rng.shuffle(starts)
        for start in starts:
            yield _pack(pool[start : start + size])


def _lesson(
    prompt: str | Sequence[Message], response: str, model: LoadedModel, where: str, *, ended: bool
) -> Lesson:
    prompt_ids = render(model.tokenizer, prompt).token_ids.tolist()
    response_ids = list(model.tokenizer(response, add_special_tokens=False)["input_ids"])
    if ended:
        response_ids.append(_end(model))
    length = len(prompt_ids) + len(response_ids)
    if length > model.context:
        raise DataError(
            f"{where} has {length} tokens, beyond the model's context of {model.context}; shorten it"
        )
    return Lesson(prompt_ids, response_ids)


def _end(model: LoadedModel) -> int:
    end = model.tokenizer.eos_token_id
    if not isinstance(end, int):
        raise DataError("the tokenizer names no end token, so answers that end cannot be imitated")
    return end


def _pack(lessons: Sequence[Lesson]) -> Batch:
    """One group a lesson. No sampler made these tokens: its log-probabilities and rewards are NaN."""
    lengths_S = torch.tensor([len(lesson.response_ids) for lesson in lessons])
    token_ids_T = torch.tensor([token for lesson in lessons for token in lesson.response_ids])
    unknown_S: Tensor = torch.full((len(lessons),), torch.nan, dtype=torch.float64)
    return Batch(
        prompts_P=tuple(torch.tensor(lesson.prompt_ids) for lesson in lessons),
        token_ids_T=token_ids_T,
        seq_T=torch.repeat_interleave(torch.arange(len(lessons)), lengths_S),
        mask_T=torch.ones(len(token_ids_T), dtype=torch.bool),
        rollout_logprobs_T=torch.full((len(token_ids_T),), torch.nan),
        group_S=torch.arange(len(lessons)),
        rewards_S=unknown_S,
        outcomes_S=unknown_S,
        truncated_S=torch.zeros(len(lessons), dtype=torch.bool),
        version_S=torch.zeros(len(lessons), dtype=torch.int64),
        keys_S=tuple(f"demonstration-{number}" for number in range(len(lessons))),
    )
