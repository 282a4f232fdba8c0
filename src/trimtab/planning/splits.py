"""Which split of the devices is fastest: candidates that fit into memory, each simulated."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trimtab.errors import SettingError
from trimtab.planning.costs import Assumptions, CostSource
from trimtab.planning.figures import Origin
from trimtab.planning.hardware import GIB, Device
from trimtab.planning.lengths import Lengths
from trimtab.planning.memory import Held, engine_memory, engine_slots, fits, running_context, trainer_memory
from trimtab.planning.shape import ModelShape
from trimtab.planning.simulation import Setup, Simulated, simulate
from trimtab.planning.timeline import Cores
from trimtab.planning.workload import Split, Workload

ALL_SPLITS = 12
"""Up to so many devices every split is simulated; beyond, those that a short simulation finds best."""

GRID, FINALISTS = 12, 3
MOST_ANSWERS, FEWEST_STEPS, MOST_STEPS, SCREEN_STEPS = 1_000_000, 8, 40, 1
LOCAL_SLOTS = 256

Layout = tuple[int, int, int]
"""(engines, trainers, staleness) of a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be planned.

    gpus: devices, or processes of one computer. prompt_from: where the prompts' length is from.
    timed: seconds of a step of layouts that were measured.
    """

    shape: ModelShape
    device: Device
    workload: Workload
    lengths: Lengths
    source: CostSource
    gpus: int
    assumed: Assumptions = field(default_factory=Assumptions)
    weight_bytes: float = 2.0
    stalenesses: tuple[int, ...] = (0, 1)
    in_flight: Literal["drain", "update"] = "drain"
    engine: Literal["local", "vllm"] = "vllm"
    max_sequences: int = 256
    seed: int = 0
    prompt_from: tuple[Origin, str] = (Origin.ASSUMED, "as given")
    timed: Mapping[Layout, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= 100_000:
            raise SettingError(f"--gpus must be between 1 and 100000, got {self.gpus}")

    @property
    def context(self) -> float:
        return running_context(self.workload, self.lengths)

    @property
    def cores(self) -> Cores:
        device = self.device
        return Cores(count=device.cores, threads=device.threads, slowdown=device.slowdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A split with its prediction. ``engine`` is None where one process does all. timed: measured seconds."""

    split: Split
    predicted: Simulated
    slots: int
    trainer: Held
    engine: Held | None
    timed: float | None


def options(question: Question) -> list[Option]:
    """Splits by predicted seconds of a step, fastest first.

    Raises: SettingError where the model fits into no split of these devices.
    """
    candidates = list(_candidates(question))
    if not candidates:
        raise SettingError(_nothing_fits(question))
    chosen = _finalists(question, candidates) if question.gpus > ALL_SPLITS else [candidates, candidates]
    splits = [
        dataclasses.replace(split, staleness=staleness)
        for staleness in question.stalenesses
        for split in chosen[min(staleness, 1)]
        if split.engines or not staleness
    ]
    answers = question.workload.groups * question.workload.answers / max(0.1, question.lengths.keep_rate)
    steps = int(min(MOST_STEPS, max(FEWEST_STEPS, MOST_ANSWERS / max(1, len(splits)) / answers)))
    found = [_option(question, split, steps) for split in splits]
    if not found:
        raise SettingError("one process cannot be asynchronous; give --gpus 2 or more, or --staleness 0")
    return sorted(found, key=lambda option: option.predicted.step)


def slots_of(question: Question, split: Split) -> int:
    """Answers that an engine runs at once; 0 where they do not fit."""
    if question.device.cores:
        return question.max_sequences
    free = engine_slots(
        question.shape,
        question.device,
        question.assumed,
        split.tensor_parallel,
        question.context,
        question.weight_bytes,
    )
    if not split.engines:  # the trainer's memory is taken as well
        held = trainer_memory(question.shape, question.workload, 1, question.weight_bytes, cpu=False)
        token = question.shape.cached_numbers * question.weight_bytes
        room = question.device.memory * question.assumed.trainer_memory - held.total
        free = max(0, int(room / (token * question.context)))
    return min(question.max_sequences, free)


def _candidates(question: Question) -> Iterator[Split]:
    base = Split(engines=0, in_flight=question.in_flight, engine=question.engine)
    if question.device.cores:
        yield base
        for engines in range(1, question.gpus):
            yield dataclasses.replace(base, engines=engines)
        return
    if question.gpus == 1:
        if _fits(question, base):
            yield base
        return
    wide = _tensor_parallel(question)
    if wide is None:
        return
    for trainers in _trainer_counts(question.gpus, wide):
        split = dataclasses.replace(
            base, engines=(question.gpus - trainers) // wide, trainers=trainers, tensor_parallel=wide
        )
        if _fits(question, split):
            yield split


def _tensor_parallel(question: Question) -> int | None:
    """The fewest devices an engine needs for a group's answers at once; None where a node is too small."""
    wide = 1
    while wide <= min(question.device.per_node, question.gpus - 1):
        if slots_of(question, Split(engines=1, tensor_parallel=wide)) >= question.workload.answers:
            return wide
        wide *= 2
    return None


def _trainer_counts(gpus: int, wide: int) -> list[int]:
    """All counts that leave whole engines; of many, about ``GRID``, close together where they are small."""
    every = [count for count in range(1, gpus) if (gpus - count) % wide == 0 and gpus - count >= wide]
    if len(every) <= ALL_SPLITS:
        return every
    ratio = (every[-1] / every[0]) ** (1.0 / (GRID - 1))
    wanted = [every[0] * ratio**place for place in range(GRID)]
    return sorted({min(every, key=lambda count, w=want: abs(count - w)) for want in wanted})


def _fits(question: Question, split: Split) -> bool:
    if slots_of(question, split) < (question.workload.answers if split.engines else 1):
        return False
    return fits(
        question.shape, question.device, question.assumed, question.workload, split, question.weight_bytes
    )


def _finalists(question: Question, candidates: Sequence[Split]) -> list[list[Split]]:
    """The best of a short simulation one after the other, and with sampling beside training; what lies
    between the best one and its neighbours is tried as well.
    """
    scores = {split: _screen(question, split) for split in candidates}
    for which in (0, 1):
        best = min(scores, key=lambda split: scores[split][which])
        for split in _beside(question, best, scores):
            scores[split] = _screen(question, split)
    return [sorted(scores, key=lambda split: scores[split][which])[:FINALISTS] for which in (0, 1)]


def _screen(question: Question, split: Split) -> tuple[float, float]:
    """(seconds of a step one after the other, seconds with sampling beside training), roughly."""
    got = _option(question, split, SCREEN_STEPS).predicted
    training = got.annotate + got.update + got.rest
    return got.step, max(got.sample + got.grade, training) + got.sync


def _beside(question: Question, best: Split, known: dict[Split, tuple[float, float]]) -> list[Split]:
    """Splits halfway between the best one and its neighbours on the grid."""
    counts = sorted(split.trainers for split in known)
    place = counts.index(best.trainers)
    wide, found = best.tensor_parallel, []
    for neighbour in counts[max(0, place - 1) : place] + counts[place + 1 : place + 2]:
        middle = (best.trainers + neighbour) // 2
        middle += (question.gpus - middle) % wide
        split = dataclasses.replace(best, engines=(question.gpus - middle) // wide, trainers=middle)
        if split not in known and split.engines and _fits(question, split):
            found.append(split)
    return found


def _option(question: Question, split: Split, steps: int) -> Option:
    slots = slots_of(question, split)
    workload, lengths = question.workload, question.lengths
    predicted = simulate(
        Setup(
            workload=workload,
            lengths=lengths,
            split=split,
            costs=question.source.costs(split),
            slots=slots,
            cores=question.cores,
            steps=steps,
            seed=question.seed,
        )
    )
    cpu, width = bool(question.device.cores), question.weight_bytes
    share = -(-workload.groups * workload.answers // max(1, split.engines))
    held = engine_memory(question.shape, min(slots, share), split.tensor_parallel, question.context, width)
    return Option(
        split=split,
        predicted=predicted,
        slots=slots,
        trainer=trainer_memory(question.shape, workload, split.trainers, width, cpu=cpu),
        engine=held if split.engines else None,
        timed=question.timed.get((split.engines, split.trainers, split.staleness)),
    )


def _nothing_fits(question: Question) -> str:
    held = trainer_memory(
        question.shape, question.workload, max(1, question.gpus - 1), question.weight_bytes, cpu=False
    )
    each = f"{question.gpus} x {question.device.name} ({question.device.memory / GIB:.0f} GiB)"
    weights = question.shape.parameters * question.weight_bytes / GIB
    return (
        f"{question.shape.name} fits into no split of {each}: an engine needs {weights:.1f} GiB for weights "
        f"and room for {question.workload.answers} answers, and a trainer needs at least "
        f"{held.total / GIB:.1f} GiB ({held}); more GPUs, a smaller trainer.tokens_per_micro_batch or "
        "trainer.gradient_checkpointing = true help"
    )
