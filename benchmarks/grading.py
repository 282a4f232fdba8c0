"""What grading costs: answers a minute, the pool's overhead, a training step with and without isolation, and
what the overlap of sampling and grading saves. One command; prints tables, writes all figures as JSON.

    python benchmarks/grading.py                                       all of it, about ten minutes
    python benchmarks/grading.py --parts answers overlap --json grading.json
    python benchmarks/grading.py --write docs/grading.md               puts the tables between its marks

Leave the machine alone meanwhile: these are seconds.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from grading_answers import FUNCTIONS, cases, measured

from trimtab.models import load_model
from trimtab.record.reader import RunReader
from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.types import Draw, Group, Prompt

SUMS = """
import re, time

def last_number(prompt, rollout):
    found = re.search(r"#\\s*(-?\\d+)\\s*\\Z", rollout.text)
    return float(found is not None and int(found[1]) == int(prompt.answer))

def slow(prompt, rollout):
    time.sleep(SLOW)
    return last_number(prompt, rollout)
"""
SLOW = 0.02
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
FIRST_STEP = 2
"""Steps before this one warm up and are not counted."""
TITLES = {
    "answers": "Answers graded in a minute, and what each costs the training process:",
    "step": "A step of `quickstart`, graded in three ways, runs taking turns:",
    "overlap": f"64 groups of 8 sampled from `embedded/sums`, graded by a function that sleeps {SLOW:g} s:",
}
WAYS = {"built-in answer": None, "own function": False, "own function, isolated": True}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def answers_part(folder: Path, answers: int) -> tuple[list[Mapping[str, Any]], str]:
    """Throughput of each grader, and the processor time that it takes from the training process."""
    functions = folder / "functions.py"
    functions.write_text(FUNCTIONS, encoding="utf-8")
    found = [measured(case, repeats=3) for case in cases(functions, answers)]
    rows = [(row["grader"], f"{row['a_minute']:,}", row["own_microseconds"]) for row in found]
    return found, table(("grader", "a minute", "microseconds of the training process each"), rows)


def step_part(folder: Path, steps: int, rounds: int) -> tuple[list[Mapping[str, Any]], str]:
    """Seconds of a quickstart step, runs of each way taking turns."""
    functions = folder / "sums.py"
    functions.write_text(SUMS.replace("SLOW", str(SLOW)), encoding="utf-8")
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    grading: dict[str, list[float]] = {way: [] for way in WAYS}
    medians: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        for way, isolated in list(WAYS.items())[:: 1 if turn % 2 == 0 else -1]:
            run = folder / f"run-{turn}-{way.replace(' ', '-').replace(',', '')}"
            _train(run, functions, isolated, steps)
            history = RunReader(run).history
            counted = [history.metrics(step) for step in range(FIRST_STEP, steps)]
            seconds[way] += [metrics["seconds/step"] for metrics in counted]
            medians[way].append(median(metrics["seconds/step"] for metrics in counted))
            grading[way] += [metrics["seconds/grade"] for metrics in counted]
    found: list[Mapping[str, Any]] = [
        {
            "way": way,
            "steps": len(seconds[way]),
            "step_seconds": median(seconds[way]),
            "run_medians": medians[way],
            "grade_seconds": median(grading[way]),
            "share": sum(grading[way]) / sum(seconds[way]),
        }
        for way in WAYS
    ]
    rows = [
        (
            row["way"],
            row["steps"],
            f"{row['step_seconds']:.3f}",
            " ".join(f"{one:.3f}" for one in row["run_medians"]),
            f"{row['grade_seconds']:.4f}",
            f"{row['share']:.1%}",
        )
        for row in found
    ]
    head = (
        "graded by",
        "steps",
        "median s a step",
        "median of each run",
        "of it grading",
        "share",
    )
    return found, table(head, rows)


def _train(run: Path, functions: Path, isolated: bool | None, steps: int) -> None:
    command = [
        sys.executable,
        "-m",
        "trimtab",
        "train",
        "quickstart",
        f"run.steps={steps}",
        "data.held_out=0",
    ]
    if isolated is not None:
        place = json.dumps(f"{functions}:last_number")
        command.append(f"reward.graders=[{{name = {place}, isolated = {str(isolated).lower()}}}]")
    subprocess.run([*command, "--out", str(run), "--plain"], check=True, stdout=subprocess.DEVNULL)


def overlap_part(folder: Path, prompts: int) -> tuple[list[Mapping[str, Any]], str]:
    """Sampling and grading by a slow function: one after the other, and overlapped as the loop does it."""
    functions = folder / "sums.py"
    functions.write_text(SUMS.replace("SLOW", str(SLOW)), encoding="utf-8")
    engine = LocalEngine(load_model("embedded/sums", device="cpu", dtype="auto"), max_sequences=64)
    rubric = build_rubric(RewardConfig(graders=(GraderConfig(name=f"{functions}:slow"),), truncated="grade"))
    draws = [Draw(_prompt(engine, number), 0) for number in range(prompts)]
    asyncio.run(_after(engine, rubric, draws[:4]))
    found: dict[str, list[float]] = {"sampling alone": [], "then grading": [], "overlapped": []}
    for _ in range(3):
        sampling, grading = asyncio.run(_after(engine, rubric, draws))
        found["sampling alone"].append(sampling)
        found["then grading"].append(sampling + grading)
        began = time.perf_counter()
        asyncio.run(rubric.grade_all(_sampled(engine, draws)))
        found["overlapped"].append(time.perf_counter() - began)
    rows = [(way, f"{median(times):.2f}") for way, times in found.items()]
    figures: list[Mapping[str, Any]] = [
        {"way": way, "seconds": median(times), "all": times} for way, times in found.items()
    ]
    return figures, table(("", "seconds"), rows)


def _prompt(engine: LocalEngine, number: int) -> Prompt:
    first, second = 10 + number % 80, 3 + number % 7
    text = f"{first}+{second}=?"
    ids = np.array(engine.model.tokenizer.encode(text), dtype=np.int64)
    return Prompt(id=f"p{number}", token_ids=ids, text=text, task="sums", answer=str(first + second))


def _sampled(engine: LocalEngine, draws: Sequence[Draw]) -> AsyncIterator[Group]:
    return engine.generate(draws, 8, Sampling(max_new_tokens=56), seed=0)


async def _after(engine: LocalEngine, rubric: Rubric, draws: Sequence[Draw]) -> tuple[float, float]:
    began = time.perf_counter()
    groups = [group async for group in _sampled(engine, draws)]
    sampled = time.perf_counter()
    await asyncio.gather(*(rubric.grade(group) for group in groups))
    return sampled - began, time.perf_counter() - sampled


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=("answers", "step", "overlap"), default=None)
    parser.add_argument("--answers", type=int, default=8000, help="answers to each grader in a pass")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=4, help="runs of each way of grading")
    parser.add_argument("--json", type=Path, default=Path("grading.json"))
    parser.add_argument("--write", type=Path, help="a file with the two marks")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    figures: dict[str, Any] = {"cores": cores}
    tables = [f"{cores} processor cores."]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        parts: dict[str, Callable[[], tuple[list[Mapping[str, Any]], str]]] = {
            "answers": lambda: answers_part(folder, args.answers),
            "step": lambda: step_part(folder, args.steps, args.rounds),
            "overlap": lambda: overlap_part(folder, 64),
        }
        for name in args.parts or parts:
            figures[name], shown = parts[name]()
            tables.append(f"{TITLES[name]}\n\n{shown}")
            print(f"\n{tables[-1]}", flush=True)
    args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if args.write:
        before, rest = args.write.read_text(encoding="utf-8").split(BEGIN)
        inside = "\n\n".join([BEGIN, *tables, END])
        args.write.write_text(before + inside + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
