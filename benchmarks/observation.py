"""What it costs to see everything: steps of the default run with full observation and with none.

    python benchmarks/observation.py              20 pairs of steps of `trimtab train quickstart`
    python benchmarks/observation.py --pairs 40 record.tokens=all

Each pair is the same step, from the same weights, prompts and seeds, four times: observed, not observed, not
observed, observed, or the other way round; the faster of two counts. Observed means: every metric and
histogram, events, the rollouts file with its token columns, entropy over the whole vocabulary, gate and trace
of every token. Not observed means that none of these is computed or written; sampling, grading, selection
and updates are the same, to the bit, which is checked.
CPU seconds suffer less from what else the machine does than wall-clock; the last line sums the CPU seconds
inside the observing functions themselves, which has no noise of subtraction.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from trimtab.config import Run, resolution
from trimtab.data.cursor import PromptCursor, fingerprint
from trimtab.data.memory import PromptMemory
from trimtab.launch import prompts_of, trainer_of
from trimtab.loop import observe, stages, synchronous
from trimtab.loop.checks import SelfChecks
from trimtab.loop.state import LoopState
from trimtab.loop.synchronous import Machines, train_step
from trimtab.metrics import Readings
from trimtab.models import load_model
from trimtab.objectives.surrogate import Clip
from trimtab.record.layout import RunFolder
from trimtab.record.writer import RunRecord
from trimtab.rewards.build import build_rubric
from trimtab.rollout.checks import fingerprint as fingerprint_of
from trimtab.rollout.local import LocalEngine
from trimtab.trainer import update


class Silent:
    """A view that shows nothing."""

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None: ...
    def evaluation(self, label: str, result: Mapping[str, Any]) -> None: ...
    def step(self, step: int, values: Mapping[str, float]) -> None: ...
    def message(self, text: str) -> None: ...
    def verdict(self, text: str, found: Sequence[object]) -> None: ...
    def finish(self, summary: Mapping[str, Any]) -> None: ...


def nothing(*_: object, **__: object) -> dict[str, Any]:
    """In place of what measures or writes."""
    return {}


OBSERVERS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (observe, "measure", nothing),
    (observe, "measure_cost", nothing),
    (observe, "write_events", nothing),
    (observe, "write_rollouts", nothing),
    (synchronous, "read", lambda *_: Readings({}, {})),
    (RunRecord, "step", nothing),
    (RunRecord, "event", nothing),
    (update, "_scatter", nothing),
    (Clip, "gate", lambda _, ratio_T, *__: ratio_T),
    (torch.linalg, "vecdot", lambda powers, _: powers[:, 0]),
)
"""What only observes, and what takes its place; ``vecdot`` is the reduction that only the entropy needs."""


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Inside, nothing is computed or written only to be seen."""
    with contextlib.ExitStack() as stack:
        for owner, name, instead in OBSERVERS:
            stack.enter_context(patch.object(owner, name, instead))
        yield


@contextlib.contextmanager
def attributed() -> Iterator[list[float]]:
    """Collects the CPU seconds of every call of an observer; none of them calls another."""
    spent: list[float] = []

    def timed_call(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            before = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent.append(time.process_time() - before)

        return run

    with contextlib.ExitStack() as stack:
        for owner, name, _ in OBSERVERS:
            inner = ("write_events",)  # it only calls RunRecord.event, which is counted
            if name not in inner:
                stack.enter_context(patch.object(owner, name, timed_call(getattr(owner, name))))
        yield spent


def machines_of(run: Run, folder: Path) -> tuple[Machines, LoopState]:
    """What `trimtab train` would drive, without evaluation."""
    model = load_model(run.model.path, device=run.model.device, dtype=run.model.dtype)
    rubric = build_rubric(run.reward)
    prompts, _ = prompts_of(run, model, rubric)
    record = RunRecord.create(folder, run={}, seeds={}, config=run.record)
    state = LoopState(
        PromptCursor(prompts.train, run.run.seed),
        PromptMemory(run.data.memory),
        held_out=fingerprint(prompts.held_out),
    )
    return Machines(LocalEngine(model), trainer_of(run, model), rubric, record, Silent(), ()), state


async def timed(run: Run, machines: Machines, state: LoopState, checks: SelfChecks) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one step."""
    wall, cpu = time.perf_counter(), time.process_time()
    await train_step(run, run.build_algorithm(), machines, state, checks)
    return time.perf_counter() - wall, time.process_time() - cpu


async def measured(run: Run, pairs: int, warm: int, folder: Path) -> list[tuple[float, ...]]:
    """For each pair: wall observed, wall not observed, CPU observed, CPU not observed, CPU of observers."""
    machines, state = machines_of(run, folder)
    checks = SelfChecks(machines.engine, machines.record, machines.view)
    checks.published(0, await stages.sync(machines.trainer, machines.engine))
    for _ in range(warm):
        await timed(run, machines, state, checks)
    rows: list[tuple[float, ...]] = []
    for pair in range(pairs):
        saved = RunFolder(folder).path / "pair"
        await machines.trainer.save(saved)
        state.save(saved / "loop")
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        own: list[float] = []
        left: list[str] = []
        first = pair % 2 == 0
        for observed in (first, not first, not first, first):
            await machines.trainer.load(saved)
            state.load(saved / "loop")
            await stages.sync(machines.trainer, machines.engine)
            with attributed() if observed else unobserved() as spent:
                found[observed].append(await timed(run, machines, state, checks))
            if spent is not None:
                own.append(sum(spent))
            left.append(fingerprint_of((await machines.trainer.publish())[0]))
        if len(set(left)) != 1:
            raise RuntimeError(f"pair {pair}: observing the step has changed it")
        fastest = {key: [min(column) for column in zip(*times, strict=True)] for key, times in found.items()}
        rows.append((fastest[True][0], fastest[False][0], fastest[True][1], fastest[False][1], min(own)))
    machines.record.close()
    return rows


def line(name: str, observed: Sequence[float], bare: Sequence[float]) -> str:
    """Seconds and the ratio's median with its quartiles."""
    ratios = sorted(a / b for a, b in zip(observed, bare, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return (
        f"| {name} | {statistics.fmean(observed):.3f} | {statistics.fmean(bare):.3f} | {middle - 1:+.2%} | "
        f"{low - 1:+.2%} to {high - 1:+.2%} | {sum(observed) / sum(bare) - 1:+.2%} |"
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", help="settings of the run, as a.b=c")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--warm", type=int, default=3, help="steps before the first pair")
    args = parser.parse_args()
    run = resolution(["quickstart"], args.settings).run
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measured(run, args.pairs, args.warm, Path(folder) / "run"))
    wall_on, wall_off, cpu_on, cpu_off, own = zip(*rows, strict=True)
    print(f"{args.pairs} pairs of steps, {torch.get_num_threads()} threads")
    print("| seconds a step | observed | not observed | median cost | quartiles | cost of all |")
    print("|" + "---|" * 6)
    print(line("wall-clock", wall_on, wall_off))
    print(line("CPU", cpu_on, cpu_off))
    print(line("CPU, summed in observers", [a + b for a, b in zip(own, cpu_off, strict=True)], cpu_off))


if __name__ == "__main__":
    main()
