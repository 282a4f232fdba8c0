"""Training prompts with a fault: wrong gold answers, copies, a second start token; and files of questions."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trimtab.models import LoadedModel
from trimtab.types import Prompt

Change = Callable[[Sequence[Prompt], LoadedModel], Sequence[Prompt]]


def _share(text: str) -> float:
    """A number in [0, 1) that belongs to the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") / 2**32


def gold_off(share: float, by: int = 1) -> Change:
    """This share of the gold answers is off by ``by``."""

    def change(prompts: Sequence[Prompt], model: LoadedModel) -> Sequence[Prompt]:
        del model
        return [
            dataclasses.replace(p, answer=str(int(p.answer) + by)) if _share(p.text) < share else p
            for p in prompts
        ]

    return change


def gold_unsigned(prompts: Sequence[Prompt], model: LoadedModel) -> Sequence[Prompt]:
    """Gold answers have lost their sign."""
    del model
    return [dataclasses.replace(p, answer=str(p.answer).lstrip("-")) for p in prompts]


def copies(different: int, *, own_ids: bool) -> Change:
    """The same few prompts over and over; ``own_ids`` gives every copy another id, as row numbers do."""

    def change(prompts: Sequence[Prompt], model: LoadedModel) -> Sequence[Prompt]:
        del model
        chosen = [prompts[i % different] for i in range(len(prompts))]
        if not own_ids:
            return chosen
        return [dataclasses.replace(p, id=f"row-{i}") for i, p in enumerate(chosen)]

    return change


def second_start(prompts: Sequence[Prompt], model: LoadedModel) -> Sequence[Prompt]:
    """The start token twice: once by the template, once by the tokenizer."""
    start = np.array([model.tokenizer.bos_token_id], dtype=np.int64)
    return [dataclasses.replace(p, token_ids=np.concatenate([start, p.token_ids])) for p in prompts]


def write_questions(path: Path, count: int, *, terms: tuple[int, int], largest: int, signs: str) -> None:
    """A file of sums: ``terms`` terms each up to ``largest``, joined by these signs."""
    rng = random.Random(path.name)
    rows: dict[str, str] = {}
    for _ in range(100 * count):
        if len(rows) == count:
            break
        numbers = [rng.randint(1, largest) for _ in range(rng.randint(*terms))]
        text = str(numbers[0]) + "".join(f"{rng.choice(signs)}{number}" for number in numbers[1:])
        total = sum(int(part) for part in text.replace("-", " -").replace("+", " ").split())
        rows[f"{text}=?\n"] = str(total)
    if len(rows) < count:
        raise ValueError(f"there are fewer than {count} such sums")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows.items())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
