"""The prompts of a run: read, checked, identified, rendered and tokenised once, before anything starts.

Every row is looked at before the first step. Whatever is wrong with whichever rows is told in one
error with row numbers; nothing of it can fail in the middle of a run.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trimtab.data.memory import MemoryConfig
from trimtab.data.reading import Item, merge_repeats, read_items, split_off
from trimtab.data.report import LoadReport, Problems
from trimtab.data.schemas import choose_schema
from trimtab.data.sources import Source, read_files, task_rows
from trimtab.data.template import Template
from trimtab.errors import DataError, SettingError, nearest
from trimtab.templates import render
from trimtab.types import Prompt

if TYPE_CHECKING:
    from trimtab.models import LoadedModel

TASK_TRAIN, TASK_HELD_OUT = 4096, 512
"""Prompts of a built-in task where the recipe does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The ``[data]`` table of a recipe.

    task: a built-in task, or ``gym:NAME`` for a dataset of reasoning-gym, made with ``task_settings``.
    files: instead of a task, .jsonl, .json or .parquet with one row a prompt.
    schema: auto, trl, verl, skyrl, gsm8k or plain. map: field -> column, for prompt, answer, id, task
        (``map = {answer = "solution"}``; dots reach into nested columns).
    held_out: prompts held out for evaluation, as a number or as files of their own. None: 512 of a
        task, a tenth of the files' prompts but at most 512.
    train_prompts: training prompts at most; None: 4096 of a task, all of the files.
    max_prompt_tokens: None: what the context leaves beside ``sampling.max_new_tokens``.
    on_long, on_bad: ``error``, or ``drop`` rows whose prompt is too long, or that are unusable otherwise
        (no or an empty answer, broken JSON, ...); dropped rows are listed in the report.
    duplicates: ``merge`` rows that repeat an earlier one, or ``keep`` drawing them that often.
    template: how prompts are written. memory: see MemoryConfig.
    seed: chooses the questions of a task and the held-out part of files.
    """

    task: str | None = None
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    schema: str = "auto"
    map: Mapping[str, str] = field(default_factory=dict)
    held_out: int | tuple[str, ...] | None = None
    train_prompts: int | None = None
    max_prompt_tokens: int | None = None
    on_long: Literal["error", "drop"] = "error"
    on_bad: Literal["error", "drop"] = "error"
    duplicates: Literal["merge", "keep"] = "merge"
    template: Template = Template()
    memory: MemoryConfig = MemoryConfig()
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.task is None) == (not self.files):
            raise SettingError('data needs either task = "NAME" or files = ["PATH", ...], and not both')
        if self.task is not None and isinstance(self.held_out, tuple):
            raise SettingError("data.held_out of a built-in task is a number, got files")
        if self.task is None and self.task_settings:
            raise SettingError("data.task_settings belong to data.task, and the data are files")
        for name, allowed in (
            ("on_long", ("error", "drop")),
            ("on_bad", ("error", "drop")),
            ("duplicates", ("merge", "keep")),
        ):
            given = getattr(self, name)
            if given not in allowed:
                raise SettingError(f"data.{name} cannot be {given!r}{nearest(str(given), allowed)}")
        for name, least in (("held_out", 0), ("train_prompts", 1), ("max_prompt_tokens", 1)):
            given = getattr(self, name)
            if isinstance(given, int) and given < least:
                raise SettingError(f"data.{name} must be >= {least}, got {given}")


@dataclass(frozen=True, slots=True, eq=False)
class PromptSet:
    """All prompts of a run. A held-out prompt is never a training prompt."""

    train: tuple[Prompt, ...]
    held_out: tuple[Prompt, ...]
    report: LoadReport

    def without(self, ids: Collection[str]) -> PromptSet:
        """The set without these prompts, for example those whose gold answer cannot be verified."""
        gone = set(ids)
        return dataclasses.replace(
            self,
            train=tuple(p for p in self.train if p.id not in gone),
            held_out=tuple(p for p in self.held_out if p.id not in gone),
        )

    def lines(self) -> list[str]:
        """The load report in plain lines, with the first prompts as rendered."""
        return list(self.report.lines(self.train, self.held_out))


class _Pool(NamedTuple):
    """The items of the training or of the held-out rows, and what reading them found."""

    items: list[Item]
    rows: int
    repeats: int
    warnings: list[str]
    schema: tuple[str, str] | None


def load_prompts(config: DataConfig, model: LoadedModel, max_new_tokens: int) -> PromptSet:
    """Read, check, split, render and tokenise all prompts. Same arguments, same prompts, same order.

    model: its tokenizer renders, its context bounds the length (prompt + max_new_tokens <= context).
    Raises DataError once, with every unusable row; SettingError on impossible settings.
    """
    limit = _longest_prompt(config, model.context, max_new_tokens)
    bad, long = Problems(), Problems()
    sources, held_sources = _sources(config, bad)
    train = _read(config, sources, bad, keep=config.duplicates == "keep")
    held_out = _read(config, held_sources, bad, keep=False)
    warnings = [*train.warnings, *(f"held out: {warning}" for warning in held_out.warnings)]
    train_items, held_items, leaked = _split(config, train.items, held_out.items)
    if leaked:
        warnings.append(f"{leaked} training prompts are also held out and were left out of training")
    prompts = _render(config, model, train_items, limit, bad, long)
    held_prompts = _render(config, model, held_items, limit, bad, long)
    Problems.raise_together(
        *([bad] if config.on_bad == "error" else []), *([long] if config.on_long == "error" else [])
    )
    if not prompts:
        raise DataError(
            f"no training prompt is left, {len(held_prompts)} are held out; data.files and data.held_out "
            "decide which there are"
        )
    warnings += [f"dropped {line.strip()}" for problems in (bad, long) for line in problems.lines()]
    report = LoadReport(
        schema=train.schema,
        rows=(train.rows, held_out.rows),
        merged=(train.repeats, held_out.repeats),
        dropped=bad.count + long.count,
        leaked=leaked,
        warnings=tuple(warnings),
        places={item.id: item.place for item in reversed([*train_items, *held_items])},
    )
    return PromptSet(train=prompts, held_out=held_prompts, report=report)


def _longest_prompt(config: DataConfig, context: int, max_new_tokens: int) -> int:
    room = context - max_new_tokens
    if room < 1:
        raise SettingError(
            f"sampling.max_new_tokens = {max_new_tokens} leaves no room for a prompt in the model's "
            f"context of {context} tokens; lower it"
        )
    if config.max_prompt_tokens is not None and config.max_prompt_tokens > room:
        raise SettingError(
            f"data.max_prompt_tokens = {config.max_prompt_tokens} and sampling.max_new_tokens = "
            f"{max_new_tokens} together exceed the model's context of {context} tokens; lower one of them"
        )
    return config.max_prompt_tokens or room


def _sources(config: DataConfig, bad: Problems) -> tuple[list[Source], list[Source]]:
    """Raw rows for training and held out; files without held-out files of their own are split later."""
    if config.task is not None:
        held_out = TASK_HELD_OUT if config.held_out is None else config.held_out
        assert isinstance(held_out, int), "checked by DataConfig"
        train = config.train_prompts or TASK_TRAIN
        return (
            task_rows(config.task, "train", train, config.seed, config.task_settings),
            task_rows(config.task, "held_out", held_out, config.seed, config.task_settings),
        )
    held_files = config.held_out if isinstance(config.held_out, tuple) else ()
    return read_files(config.files, bad), read_files(held_files, bad)


def _read(config: DataConfig, sources: Sequence[Source], bad: Problems, *, keep: bool) -> _Pool:
    schema = "plain" if config.task is not None else config.schema
    chosen = choose_schema(schema, [source.row for source in sources])
    items = read_items(sources, chosen[0], config.map, bad)
    items, repeats, warnings = merge_repeats(items, keep, bad)
    return _Pool(items, len(sources), repeats, warnings, None if config.task is not None else chosen)


def _split(config: DataConfig, train: list[Item], held_out: list[Item]) -> tuple[list[Item], list[Item], int]:
    """(training, held out, training prompts left out because they are held out)."""
    leaked = 0
    if config.task is None and not isinstance(config.held_out, tuple):
        different = len({item.question for item in train})
        count = min(different // 10, TASK_HELD_OUT) if config.held_out is None else config.held_out
        train, held_out = split_off(train, count, config.seed)
        held_out = list({item.key: item for item in held_out}.values())
    else:
        questions = {item.question for item in held_out}
        leaked = sum(item.question in questions for item in train)
        train = [item for item in train if item.question not in questions]
    return train[: config.train_prompts], held_out, leaked


def _render(
    config: DataConfig, model: LoadedModel, items: Sequence[Item], limit: int, bad: Problems, long: Problems
) -> tuple[Prompt, ...]:
    """The prompts as the model reads them; what cannot be rendered goes to ``bad``, too long to ``long``."""
    prompts: list[Prompt] = []
    made: dict[str, Prompt | None] = {}
    too_long: list[tuple[Item, int]] = []
    for item in items:
        if item.key not in made:
            made[item.key] = _prompt(config, model, item, bad)
        prompt = made[item.key]
        if prompt is not None and len(prompt.token_ids) > limit:
            too_long.append((item, len(prompt.token_ids)))
        elif prompt is not None:
            prompts.append(prompt)
    what = f"prompt longer than {limit} tokens, what the context leaves beside max_new_tokens"
    lever = "lower sampling.max_new_tokens"
    if config.max_prompt_tokens is not None:
        what, lever = f"prompt longer than data.max_prompt_tokens = {limit}", "raise data.max_prompt_tokens"
    longest = max((length for _, length in too_long), default=0)
    remedy = f'the longest has {longest}; {lever} or set data.on_long = "drop"'
    for item, _ in too_long:
        long.add(what, item.source.origin, item.source.number, remedy)
    return tuple(prompts)


def _prompt(config: DataConfig, model: LoadedModel, item: Item, bad: Problems) -> Prompt | None:
    written = config.template.apply(item.prompt)
    try:
        text, token_ids = render(model.tokenizer, written)
    except DataError as fault:
        bad.add(str(fault), item.source.origin, item.source.number, "see data.template")
        return None
    return Prompt(
        id=item.id,
        token_ids=token_ids,
        text=text,
        task=item.task,
        answer=item.answer,
        messages=None if isinstance(written, str) else written,
        meta=item.meta,
    )
