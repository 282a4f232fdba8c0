"""The algorithms side by side, and one of them explained: read off the real values and docstrings."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields

from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.parts import Parts
from trimtab.algorithms.presets import ALGORITHMS
from trimtab.errors import SettingError, nearest
from trimtab.objectives.aggregate import SeqMeanTokenSumNorm, aggregate_name
from trimtab.objectives.ratio import RATIOS
from trimtab.rewards.shaping import HardOverlong, RewardScale, SoftOverlong

FROM_RUN = {"max_new_tokens": "   (in a recipe always sampling.max_new_tokens)"}
"""Arguments that a recipe does not give: the run does."""


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm in words, with the numbers of its preset."""

    algorithm: str
    advantage: str
    ratio: str
    trust_region: str
    aggregation: str
    also: str


@dataclass(frozen=True, slots=True)
class Overview:
    """All presets; printing it gives an aligned table."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        names = [field.name for field in fields(Row)]
        cells = [[name.replace("_", " ") for name in names]]
        cells += [[str(getattr(row, name)) for name in names] for row in self.rows]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        )


def overview() -> Overview:
    """Every preset with the paper's numbers, in the order of ``ALGORITHMS``."""
    return Overview(tuple(row_of(preset()) for preset in ALGORITHMS.values()))


def describe(name: str) -> str:
    """The text of an algorithm's file (formula, source, neighbour), its pieces and its arguments."""
    if name not in ALGORITHMS:
        raise SettingError(f"unknown algorithm {name!r}{nearest(name, ALGORITHMS)}")
    preset = ALGORITHMS[name]
    row = row_of(preset())
    pieces = "\n".join(
        f"    {field.name.replace('_', ' '):14}{getattr(row, field.name)}"
        for field in fields(Row)
        if field.name != "algorithm" and getattr(row, field.name)
    )
    arguments = "\n".join(
        f"    {parameter.name} = {parameter.default}{FROM_RUN.get(parameter.name, '')}"
        for parameter in inspect.signature(preset).parameters.values()
    )
    text = inspect.getdoc(inspect.getmodule(preset)) or ""
    return f"{text}\n\nPieces:\n{pieces}\n\nArguments:\n{arguments or '    none'}"


def row_of(algorithm: Algorithm) -> Row:
    """An algorithm in words. Raises TypeError for one that no recipe can spell."""
    parts = Parts.of(algorithm)
    return Row(
        algorithm=algorithm.name,
        advantage=str(algorithm.advantage),
        ratio=next((name for name, known in RATIOS.items() if known is parts.ratio), "custom"),
        trust_region=str(parts.surrogate),
        aggregation=_aggregation(parts),
        also="; ".join(_also(parts)),
    )


def _aggregation(parts: Parts) -> str:
    if isinstance(parts.aggregate, SeqMeanTokenSumNorm):
        return f"seq-mean-token-sum-norm ({parts.aggregate.horizon})"
    return (aggregate_name(parts.aggregate) if parts.aggregate is not None else None) or "custom"


def _also(parts: Parts) -> Iterator[str]:
    for weighted in (parts.kl, parts.value, parts.entropy):
        if weighted is not None:
            yield f"{weighted[1]}, {weighted[0]:g}"
    if parts.kl_in_reward is not None:
        yield str(parts.kl_in_reward)
    if parts.entropy_target is not None:
        yield str(parts.entropy_target)
    if parts.correction is not None:
        yield f"rollout correction: {parts.correction}"
    if parts.selection is not None:
        yield "dynamic sampling"
    match parts.shaping:
        case SoftOverlong(buffer, maximum):
            yield f"soft overlong ({buffer} of {maximum})"
        case HardOverlong(penalty):
            yield f"hard overlong (-{penalty:g})"
        case None:
            pass
    if parts.overlong_filter:
        yield "overlong filtering"
    if parts.reward != RewardScale():
        yield f"rewards {parts.reward.right:+g} / {parts.reward.wrong:+g}"
