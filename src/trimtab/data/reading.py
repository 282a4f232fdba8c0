"""From raw rows to checked, identified, deduplicated items; nothing here knows a tokenizer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.data.report import Problems, listed
from trimtab.data.schemas import ABSENT, SCHEMAS, Content, columns_of, renamed
from trimtab.data.sources import Source
from trimtab.errors import SettingError, nearest

FIELDS = ("prompt", "answer", "id", "task")
"""What ``data.map`` can name a column for."""

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """One usable row. ``question`` is a hash of the prompt, ``key`` of prompt, answer and task."""

    source: Source
    prompt: str | tuple[Message, ...]
    answer: Any
    id: str
    task: str
    meta: Mapping[str, Any]
    question: str
    key: str

    @property
    def place(self) -> str:
        """``train.jsonl row 7``."""
        return f"{self.source.origin} row {self.source.number}"


def read_items(
    sources: Sequence[Source], schema: str, mapping: Mapping[str, str], problems: Problems
) -> list[Item]:
    """The usable rows as items; every other row goes to ``problems`` with what it lacks.

    When no row at all has an answer and none was mapped, answers are None and no problem: some
    graders need none. Raises SettingError when ``mapping`` names a field that does not exist.
    """
    for field in mapping:
        if field not in FIELDS:
            raise SettingError(
                f"data.map names the columns of fields, {field!r} is none{nearest(field, FIELDS)}"
            )
    there = ", ".join(columns_of(source.row for source in sources))
    contents: list[tuple[Source, Content]] = []
    for source in sources:
        row, missing = renamed(source.row, mapping)
        for name in missing:
            problems.add(
                f"no column {name!r} (data.map)", source.origin, source.number, f"columns there: {there}"
            )
        if not missing:
            contents.append((source, SCHEMAS[schema](row)))
    answered = "answer" in mapping or any(content.answer is not ABSENT for _, content in contents)
    items: list[Item] = []
    for source, content in contents:
        fault = _fault(content, answered, schema)
        if fault is None:
            items.append(_item(source, content))
        else:
            what, field = fault
            remedy = (
                f'mend the row, set data.map = {{{field} = "COLUMN"}} or drop such rows with '
                f'data.on_bad = "drop" (columns there: {there})'
            )
            problems.add(what, source.origin, source.number, remedy)
    return _of_one_kind(items, problems)


def merge_repeats(items: Sequence[Item], keep: bool, problems: Problems) -> tuple[list[Item], int, list[str]]:
    """Items without repeats (``keep`` leaves them in), how many rows repeat, and warnings about them.

    A repeat has the prompt, answer and task of an earlier row. One id for two different items is a
    problem, because pass rates and seeds go by id.
    """
    first: dict[str, Item] = {}
    by_id: dict[str, Item] = {}
    left: list[Item] = []
    for item in items:
        if by_id.setdefault(item.id, item).key != item.key:
            what = f"id {item.id!r} also names the different {_where(by_id[item.id])}"
            problems.add(what, item.source.origin, item.source.number, "make ids unique or leave them out")
        elif item.key not in first or keep:
            left.append(first.get(item.key, item))
        first.setdefault(item.key, item)
    repeats = len(items) - len(first)
    warnings: list[str] = []
    if repeats:
        kept = "are drawn as often as they stand there" if keep else "were merged with it"
        warnings.append(
            f"{repeats} of {len(items)} rows repeat an earlier one and {kept}; {len(first)} are different"
        )
    answers = Counter(item.question for item in first.values())
    disputed = [item.source.number for item in first.values() if answers[item.question] > 1]
    if disputed:
        warnings.append(f"the same prompt stands with different answers in {listed(disputed)}")
    return left, repeats, warnings


def split_off(items: Sequence[Item], count: int, seed: int) -> tuple[list[Item], list[Item]]:
    """(training, held out): ``count`` prompts chosen by a hash of seed and prompt, whatever their order."""
    ranked = sorted({item.question for item in items}, key=lambda question: _digest([seed, question]))
    chosen = set(ranked[:count])
    return [i for i in items if i.question not in chosen], [i for i in items if i.question in chosen]


def _fault(content: Content, answered: bool, schema: str) -> tuple[str, str] | None:
    """What makes the row unusable, and the field it concerns; None when nothing does."""
    prompt, answer = content.prompt, content.answer
    if prompt is ABSENT:
        return f"no prompt ({schema} schema)", "prompt"
    if isinstance(prompt, str):
        if not prompt.strip():
            return "empty prompt", "prompt"
    elif not _are_messages(prompt):
        return "prompt is neither text nor a list of {role, content} messages with text", "prompt"
    if not _is_unicode(prompt):
        return "prompt holds half a surrogate pair, which is no character", "prompt"
    if answered and answer is ABSENT:
        return f"no answer ({schema} schema)", "answer"
    if isinstance(answer, str) and not answer.strip():
        return "empty answer", "answer"
    return None


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and len(prompt) > 0
        and all(isinstance(m, dict) for m in prompt)
        and all(isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in prompt)
    )


def _is_unicode(prompt: Any) -> bool:
    try:
        json.dumps(prompt, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _item(source: Source, content: Content) -> Item:
    prompt = content.prompt
    if not isinstance(prompt, str):
        prompt = tuple({"role": m["role"], "content": m["content"]} for m in prompt)
    answer = None if content.answer is ABSENT else content.answer
    task = Path(source.origin).stem if content.task is ABSENT else str(content.task)
    key = _digest([prompt, answer, task])
    own = {"answer": content.answer, "id": content.id}
    meta = {
        name: value
        for name, value in source.row.items()
        if name != content.prompt_column and own.get(name, ABSENT) is not value
    }
    identity = key if content.id is ABSENT else str(content.id)
    return Item(
        source=source,
        prompt=prompt,
        answer=answer,
        id=identity,
        task=task,
        meta=meta,
        question=_digest(prompt),
        key=key,
    )


def _of_one_kind(items: list[Item], problems: Problems) -> list[Item]:
    """The items, when all prompts are text or all are messages; else the rarer kind is a problem."""
    texts = [item for item in items if isinstance(item.prompt, str)]
    messages = [item for item in items if not isinstance(item.prompt, str)]
    if not texts or not messages:
        return items
    rare, common = (texts, messages) if len(texts) < len(messages) else (messages, texts)
    words = ("text", "messages") if rare is texts else ("messages", "text")
    for item in rare:
        what = f"prompt is {words[0]}, but {len(common)} other prompts are {words[1]}"
        problems.add(what, item.source.origin, item.source.number, "write all prompts in one way")
    return common


def _where(item: Item) -> str:
    return f"row {item.source.number} of {item.source.origin}"


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
