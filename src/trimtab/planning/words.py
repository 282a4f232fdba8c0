"""A plan in words and as a table."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from trimtab.planning.figures import Figure, Origin
from trimtab.planning.hardware import GIB
from trimtab.planning.splits import Option, Question

SHOWN, WIDTH = 12, 110
WORTH_SAYING = 0.05
HEADER = (
    "split", "S", "step", "sampling", "training", "delivery", "engines wait", "trainers wait", "tokens/s",
    "engine GiB", "trainer GiB", "",
)  # fmt: skip


def seconds(value: float) -> str:
    """``0.012 s``, ``3.4 s``, ``12.5 min`` or ``3.2 h``."""
    if value < 1.0:
        return f"{value:.3f} s"
    if value < 120.0:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200.0 else f"{value / 3600:.1f} h"


def table(found: Sequence[Option], shown: int = SHOWN) -> Iterator[str]:
    """The options, fastest first and marked; the best synchronous one is always among them."""
    chosen = list(found[:shown])
    sync = next((option for option in found if not option.split.staleness), None)
    chosen += [sync] if sync is not None and sync not in chosen else []
    rows = [HEADER, *(_row(option) for option in chosen)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for place, row in enumerate(rows):
        mark = "*" if place == 1 else " "
        cells = [
            cell.ljust(w) if c == 0 else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"{mark} {'  '.join(cells)}".rstrip()
    if len(found) > len(chosen):
        yield f"  and {len(found) - len(chosen)} slower ones (--all shows them)"


def _row(option: Option) -> tuple[str, ...]:
    got, one = option.predicted, option.engine is None
    return (
        str(option.split),
        str(option.split.staleness),
        seconds(got.step),
        seconds(got.sample + got.grade),
        seconds(got.annotate + got.update),
        seconds(got.sync),
        "-" if one else f"{got.engines_idle:.0%}",
        "-" if one else f"{got.trainers_idle:.0%}",
        f"{got.tokens_per_second:,.0f}",
        "-" if option.engine is None else f"{option.engine.total / GIB:.1f}",
        f"{option.trainer.total / GIB:.1f}",
        "unvalidated" if option.timed is None else f"measured {seconds(option.timed)}",
    )


def inputs(figures: Sequence[Figure]) -> Iterator[str]:
    """What the prediction rests on, measured things first; what has one explanation stands together."""
    for origin in (Origin.MEASURED, Origin.COMPUTED, Origin.ASSUMED):
        together: dict[str, list[Figure]] = {}
        for figure in figures:
            if figure.origin is origin:
                together.setdefault(figure.how, []).append(figure)
        for how, own in together.items():
            told = ", ".join(f"{f.name} {f.value:.4g}{f' {f.unit}' if f.unit else ''}" for f in own)
            yield from textwrap.wrap(
                f"{told} ({how})", WIDTH, initial_indent=f"{origin}: ", subsequent_indent="    "
            )


def question_figures(question: Question) -> list[Figure]:
    """Model, lengths and workload with their origins."""
    shape, lengths, work = question.shape, question.lengths, question.workload
    computed = Origin.COMPUTED
    told = [
        Figure("parameters", shape.parameters / 1e9, "billion", shape.origin, shape.name),
        Figure("answer length", lengths.mean, "tokens", lengths.origin, lengths.how),
        Figure("prompt length", work.prompt, "tokens", *question.prompt_from),
        Figure(
            "groups kept", lengths.keep_rate, "share", lengths.origin, "dynamic sampling draws for the others"
        ),
        Figure(
            "cache of a token",
            shape.cached_numbers * question.weight_bytes / 1024,
            "KiB",
            computed,
            "2 x layers x kv heads x head size",
        ),
        Figure(
            "context of a running answer", question.context, "tokens", computed, "prompt + E[n^2] / (2 E[n])"
        ),
    ]
    if shape.active != shape.parameters:
        told.insert(
            1, Figure("active parameters", shape.active / 1e9, "billion", shape.origin, "of one token")
        )
    return told


def verdict(question: Question, found: Sequence[Option]) -> Iterator[str]:
    """The best split, what waits for what, and what nobody has checked."""
    best = found[0]
    got = best.predicted
    mode = (
        "synchronous"
        if not best.split.staleness
        else f"staleness {best.split.staleness}, {question.in_flight}"
    )
    speed = f"{got.tokens_per_second:,.0f} tokens a second"
    yield f"Fastest: {best.split}, {mode}: {seconds(got.step)} a step, {speed}."
    sync = next((option for option in found if not option.split.staleness), None)
    if sync is not None and sync is not best:
        yield (
            f"It is {sync.predicted.step / got.step:.2f} times as fast as the best synchronous split "
            f"({sync.split}, {seconds(sync.predicted.step)}), and trains on answers {got.staleness:.1f} "
            "updates old on average."
        )
    if best.engine is None:
        yield from _shares(best)
    else:
        yield from _waits(question, best)
    if got.tail >= 0.2:
        yield (
            f"In {got.tail:.0%} of the sampling time the last tenth of a round's answers runs: a lower "
            "max_new_tokens, or more groups a step, would fill it."
        )
    if got.rounds >= 1.3:
        yield (
            f"Dynamic sampling takes {got.rounds:.1f} rounds a step, each with a tail of its own; it draws "
            f"{got.draws:.0f} prompts for {question.workload.groups} kept groups."
        )
    if not question.device.cores:
        yield _memory(question, best)
    yield unvalidated(question, best)


def _shares(best: Option) -> Iterator[str]:
    got = best.predicted
    parts = {
        "sampling": got.sample,
        "grading": got.grade,
        "training": got.annotate + got.update,
        "the rest": got.rest,
    }
    told = sorted(parts.items(), key=lambda item: -item[1])
    yield "One process does all in turn: " + ", ".join(f"{k} {v / got.step:.0%}" for k, v in told if v) + "."


def _waits(question: Question, best: Option) -> Iterator[str]:
    got, split = best.predicted, best.split
    for_training = max(0.0, 1.0 - got.sample / got.step)
    for_answers = max(0.0, got.engines_idle - for_training)
    if got.engines_idle >= WORTH_SAYING:
        reasons = [
            (for_training, "for training and new weights"),
            (for_answers, "for the last answers of other engines"),
        ]
        told = " and ".join(
            f"{share:.0%} {why}" for share, why in sorted(reasons, reverse=True) if share >= 0.01
        )
        yield f"Engines wait {got.engines_idle:.0%} of the time: {told}."
    if got.trainers_idle >= WORTH_SAYING:
        idle = f"{got.trainers_idle:.0%}"
        yield f"Trainers wait {idle} of the time, for answers, weights and what lies between steps."
    if got.busiest >= 1.1:
        most = f"{got.busiest:.2f} times the mean of tokens"
        yield f"The busiest trainer has {most}: few answers for so many trainers."
    groups = got.draws / max(1.0, got.rounds)
    if split.engines > groups:
        yield (
            f"A round has {groups:.0f} groups for {split.engines} engines, and a group stays on one engine: "
            f"{split.engines - groups:.0f} engines get nothing. More prompts a step cost no time."
        )


def _memory(question: Question, best: Option) -> str:
    told = f"A trainer holds {best.trainer.total / GIB:.1f} GiB ({best.trainer})"
    if best.engine is not None:
        told += f"; a GPU of an engine {best.engine.total / GIB:.1f} GiB ({best.engine})"
        told += f", room for {best.slots} answers"
    return f"Memory of {question.device.memory / GIB:.0f} GiB: {told}."


def unvalidated(question: Question, best: Option) -> str:
    """What of the prediction was never compared with a clock."""
    if best.timed is not None:
        off = best.predicted.step / best.timed - 1.0
        return (
            f"This split was run: {seconds(best.timed)} a step at the median, so the prediction is off by "
            f"{off:+.0%}; its costs come from that run, so this checks the model and not its foresight."
        )
    if question.source.measured:
        return (
            "Unvalidated: stage costs were measured, this split was not timed. docs/plan.md says how far "
            "such predictions were off where they were."
        )
    return (
        "Unvalidated: all costs come from data sheets and assumed shares of their limits; no run on such "
        "hardware was compared. Trust the comparison of splits more than the seconds; measure a step first."
    )


def to_json(question: Question, found: Sequence[Option], figures: Sequence[Figure]) -> dict[str, Any]:
    """Everything, for a machine. Predicted values are computed from the inputs, which carry their origins."""
    return {
        "gpus": question.gpus,
        "hardware": question.device.name,
        "model": question.shape.name,
        "inputs": [figure.to_json() for figure in figures],
        "options": [
            {
                "split": dataclasses.asdict(option.split),
                "predicted": dataclasses.asdict(option.predicted),
                "origin": str(Origin.COMPUTED),
                "measured_step": option.timed,
                "slots": option.slots,
                "engine_bytes": None if option.engine is None else dict(option.engine.items),
                "trainer_bytes": dict(option.trainer.items),
            }
            for option in found
        ],
        "verdict": list(verdict(question, found)),
    }
